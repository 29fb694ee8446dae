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
	"github.com/weir-ml/weir/schedule/units"
	"github.com/weir-ml/weir/trainer/metrics"
	"github.com/weir-ml/weir/trainer/report"
)

// Hooks returns the runner's hooks for the metrics. A process that does not lead keeps its
// samples for the leader until the end of the step.
func (w *Process) Hooks(run *metrics.Recorder) runner.Hooks {
	hooks := run.Hooks()
	if !w.Leads() {
		hooks.Microbatch = func(s *memory.Sample) {
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.training {
				if len(w.samples) == maxSamples {
					w.samples = halve(w.samples)
				}
				w.samples = append(w.samples, *s)
			}
		}
	}
	return hooks
}

// maxSamples is the maximum number of samples that a process keeps of a step (L7). If a step has more samples,
// each sample that is kept covers several microbatches.
const maxSamples = 4096

// halve replaces every two consecutive samples of a rank by one that covers both.
func halve(samples []memory.Sample) []memory.Sample {
	kept := samples[:0]
	odd := map[int]memory.Sample{} // by rank: a sample whose successor has not been seen
	for _, s := range samples {
		before, ok := odd[s.Rank]
		if !ok {
			odd[s.Rank] = s
			continue
		}
		delete(odd, s.Rank)
		if before.Peak > s.Peak {
			s.Peak, s.PeakClasses = before.Peak, before.PeakClasses
		}
		s.PeakPlanned, s.FarPeak, s.FarPlanned = max(s.PeakPlanned, before.PeakPlanned), max(s.FarPeak, before.FarPeak), max(s.FarPlanned, before.FarPlanned)
		s.Growth, s.WaitData = s.Growth+before.Growth, s.WaitData+before.WaitData
		kept = append(kept, s)
	}
	for _, rank := range slices.Sorted(maps.Keys(odd)) {
		kept = append(kept, odd[rank])
	}
	return kept
}

// Step runs a step, and sends the samples of all processes to the leader, which writes them to
// the log of run. If the step fails, its samples are dropped.
func (w *Process) Step(ctx context.Context, run *metrics.Recorder, step func() (*runner.Result, error)) (*runner.Result, error) {
	if w == nil {
		return step()
	}
	w.training = true
	defer func() { w.training, w.samples = false, w.samples[:0] }()
	result, err := step()
	if err != nil {
		return result, err
	}
	write := run.Hooks().Microbatch
	return result, exchangeValues(ctx, w, w.samples, func(_ int, theirs *[]memory.Sample) error {
		for i := range *theirs {
			if w.Leads() {
				write(&(*theirs)[i])
			}
		}
		return nil
	})
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
func (w *Process) JoinActions(run *metrics.Recorder) error {
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

// WaitsTable returns a table of how long ranks waited for each other. JoinActions collects the times. The table
// is empty if there is only one process.
func (w *Process) WaitsTable() report.Table {
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
