package misuse

import (
	"context"
	"errors"
	"iter"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/runner"
)

// TestCallsBackAreBusy calls the runner from its hooks, from a stage, from the source and from the function
// passed to Update. Calls that would begin or end something fail with ErrBusy, Prepare works, and the
// running step continues.
func TestCallsBackAreBusy(t *testing.T) {
	for ranks := 1; ranks <= 2; ranks++ {
		p := sound(hosts(t, ranks)...)
		var last *runner.Result
		var lock sync.Mutex
		calls := map[string]int{}
		back := func(from string) {
			if p.runner == nil { // New has not returned yet
				return
			}
			lock.Lock()
			defer lock.Unlock()
			calls[from]++
			_, step := p.runner.Step(t.Context(), 1, p.source)
			_, evaluated := p.runner.Evaluate(t.Context(), 1, p.source)
			_, prepared := p.runner.Prepare(t.Context(), 1, p.source)
			require.NoError(t, prepared)
			for _, err := range []error{step, evaluated, p.runner.Close(), p.runner.SetScaleExponent(1)} {
				require.ErrorIs(t, err, runner.ErrBusy, from)
			}
			if last != nil && from != "update" {
				require.ErrorIs(t, last.Update(func(float64) error { return nil }), runner.ErrBusy, from)
			}
			p.runner.Statuses()
			p.runner.NextStep()
		}
		p.cfg.Hooks.Action = func(int, schedule.Action) { back("action") }
		p.cfg.Hooks.Microbatch = func(*memory.Sample) { back("microbatch") }
		p.cfg.Hooks.Failed = func(int, error, iter.Seq[memory.Info]) { back("failed") }
		after(&p.firstForward, func(*program, MB, []T, []T) { back("stage") })
		p.source = runner.Indexed(func(_ context.Context, e batchctx.Entry[T]) error { back("source"); p.put(e); return nil })
		fails := false
		after(&p.lastBackward, func(_ *program, mb MB, _, _ []T) {
			if fails {
				mb.Check(errors.New("on purpose"))
			}
		})
		p.update = func(p *program, result *runner.Result) (err error) {
			if result.Step == 0 { // after an evaluation, the update is still possible
				last = result
				if _, err = p.runner.Evaluate(t.Context(), p.microbatches, p.source); err != nil {
					return err
				}
			}
			err = result.Update(func(float64) error { back("update"); return nil })
			fails = true
			return err
		}
		_, err := p.run(t.Context())
		require.ErrorContains(t, err, "on purpose")
		for _, from := range []string{"action", "microbatch", "failed", "stage", "source", "update"} {
			require.Positive(t, calls[from], "%s, %d ranks", from, ranks)
		}
	}
}

// TestOtherGoroutinesAreBusy steps, updates and closes from several goroutines at the same time: each call works or
// is refused.
func TestOtherGoroutinesAreBusy(t *testing.T) {
	for ranks := 1; ranks <= 2; ranks++ {
		p := sound(hosts(t, ranks)...)
		r, err := runner.New(p.cfg)
		require.NoError(t, err)
		var group sync.WaitGroup
		for i := range 4 {
			group.Go(func() {
				for k := range 50 {
					result, err := r.Step(t.Context(), p.microbatches, p.source)
					if err == nil {
						err = result.Update(func(float64) error { return nil })
					}
					if i == 0 && k == 25 {
						err = r.Close()
					}
					if err != nil && !errors.Is(err, runner.ErrBusy) && !errors.Is(err, runner.ErrStaleResult) && !errors.Is(err, runner.ErrClosed) && !errors.Is(err, runner.ErrUnused) {
						t.Error(err)
					}
				}
			})
		}
		group.Wait()
		require.NoError(t, r.Close())
	}
}
