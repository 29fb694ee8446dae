package main

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/weir-ml/weir/trainer/metrics"
	"github.com/weir-ml/weir/trainer/report"
	"github.com/weir-ml/weir/trainer/units"
)

// history is what a process brings for the timeline.
type history struct {
	Began, Ended [16]time.Duration // of exchanges, by its clock
	Actions      map[int][]metrics.Action
	Waits        map[int][]time.Duration // of a rank, by the rank that it waited for
}

// behind returns by how much a clock is behind that of theirs: no exchange ends anywhere
// before it has begun everywhere, and the middle of what that allows is near enough.
func (h *history) behind(theirs *history) time.Duration {
	least, most := time.Duration(math.MinInt64), time.Duration(math.MaxInt64)
	for i := range h.Began {
		least, most = max(least, theirs.Began[i]-h.Ended[i]), min(most, theirs.Ended[i]-h.Began[i])
	}
	return least + (most-least)/2
}

// waitsTable shows for how long ranks have waited for each other.
func (w *world) waitsTable() report.Table {
	table := report.Table{Title: "Waits by link", Head: []string{"rank", "for rank", "in all"}}
	for _, rank := range slices.Sorted(maps.Keys(w.waits)) {
		for of, took := range w.waits[rank] {
			if took > 0 {
				table.Rows = append(table.Rows, []string{strconv.Itoa(rank), strconv.Itoa(of), units.Seconds(took.Seconds())})
			}
		}
	}
	return table
}

// joinActions brings the last actions of all ranks, and their waits, to the process that
// writes, for its page.
func (t *trainer) joinActions() error {
	w, ctx, since := t.world, context.Background(), time.Now()
	mine := history{Actions: map[int][]metrics.Action{}, Waits: map[int][]time.Duration{}}
	for i := range mine.Began {
		mine.Began[i] = time.Since(since)
		if _, err := w.exchange(ctx, nil); err != nil {
			return err
		}
		mine.Ended[i] = time.Since(since)
	}
	for i, end := range w.ends {
		mine.Actions[w.first+i], mine.Waits[w.first+i] = t.metrics.LastActions(w.first+i, since), end.Waits()
	}
	w.waits = mine.Waits
	data, err := encode(mine)
	if err != nil {
		return err
	}
	all, err := w.exchange(ctx, data)
	for rank, data := range all {
		var theirs history
		if w.has(rank) || len(data) == 0 || err != nil {
			continue
		}
		err = decode(data, &theirs)
		for of, actions := range theirs.Actions {
			if of < 0 || of >= t.opts.ranks {
				return fmt.Errorf("rank %d sends the actions of rank %d", rank, of)
			}
			t.metrics.SetLastActions(of, since.Add(-mine.behind(&theirs)), actions)
			w.waits[of] = theirs.Waits[of]
		}
	}
	return err
}
