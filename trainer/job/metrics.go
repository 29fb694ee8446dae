package job

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/trainer/metrics"
	"github.com/weir-ml/weir/trainer/report"
	"github.com/weir-ml/weir/trainer/units"
)

// Hooks returns the runner's hooks for the metrics. A process that does not lead keeps its
// samples for the leader.
func (w *World) Hooks(run *metrics.Run) runner.Hooks {
	hooks := run.Hooks()
	if !w.Leads() {
		hooks.Microbatch = func(s *memory.Sample) {
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.training {
				w.samples = append(w.samples, *s)
			}
		}
	}
	return hooks
}

// samplesAtOnce is the maximum number of samples that a process sends in one exchange.
const samplesAtOnce = 4096

// Step runs a step, and sends the samples of all processes to the leader, which writes them to
// the log of run.
func (w *World) Step(ctx context.Context, run *metrics.Run, step func() (*runner.Result, error)) (*runner.Result, error) {
	if w == nil {
		return step()
	}
	w.training = true
	defer func() { w.training = false }()
	result, err := step()
	write := run.Hooks().Microbatch
	for more := err == nil; more && err == nil; {
		n := min(len(w.samples), samplesAtOnce)
		more = n == samplesAtOnce
		err = exchangeValues(ctx, w, w.samples[:n], func(_ int, theirs *[]memory.Sample) error {
			more = more || len(*theirs) == samplesAtOnce
			for i := range *theirs {
				if w.Leads() {
					write(&(*theirs)[i])
				}
			}
			return nil
		})
		w.samples = w.samples[:copy(w.samples, w.samples[n:])]
	}
	return result, err
}

// history is one process's contribution to the timeline.
type history struct {
	Began, Ended [16]time.Duration // times of exchanges, by the process's clock
	Actions      map[int][]metrics.Action
	Waits        map[int][]time.Duration // waits of each rank, by awaited rank
}

// behind returns how far h's clock is behind the clock of theirs. An exchange does not end in any
// process until it has begun in all of them; the result is the middle of the range that this
// allows.
func (h *history) behind(theirs *history) time.Duration {
	least, most := time.Duration(math.MinInt64), time.Duration(math.MaxInt64)
	for i := range h.Began {
		least, most = max(least, theirs.Began[i]-h.Ended[i]), min(most, theirs.Ended[i]-h.Began[i])
	}
	return least + (most-least)/2
}

// JoinActions sends the last actions of all ranks, and their waits, to all processes. The leader
// shows them on its page.
func (w *World) JoinActions(run *metrics.Run) error {
	if w == nil {
		return nil
	}
	ctx, since := context.Background(), time.Now()
	mine := history{Actions: map[int][]metrics.Action{}, Waits: map[int][]time.Duration{}}
	for i := range mine.Began {
		mine.Began[i] = time.Since(since)
		if _, err := w.exchange(ctx, nil); err != nil {
			return err
		}
		mine.Ended[i] = time.Since(since)
	}
	for i, end := range w.ends {
		mine.Actions[w.First+i], mine.Waits[w.First+i] = run.LastActions(w.First+i, since), end.Waits()
	}
	w.waits = maps.Clone(mine.Waits)
	return exchangeValues(ctx, w, mine, func(rank int, theirs *history) error {
		for of, actions := range theirs.Actions {
			if of < 0 || of >= w.ranks {
				return fmt.Errorf("rank %d sends the actions of rank %d", rank, of)
			}
			run.SetLastActions(of, since.Add(-mine.behind(theirs)), actions)
			w.waits[of] = theirs.Waits[of]
		}
		return nil
	})
}

// WaitsTable returns a table of how long ranks waited for each other. It is set by JoinActions,
// and empty if there is only one process.
func (w *World) WaitsTable() report.Table {
	table := report.Table{Title: "Waits by link", Head: []string{"rank", "for rank", "in all"}}
	if w == nil {
		return table
	}
	for _, rank := range slices.Sorted(maps.Keys(w.waits)) {
		for of, took := range w.waits[rank] {
			if took > 0 {
				table.Rows = append(table.Rows, []string{strconv.Itoa(rank), strconv.Itoa(of), units.Seconds(took.Seconds())})
			}
		}
	}
	return table
}
