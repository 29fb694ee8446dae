package stagetest

import (
	"context"
	"errors"

	"github.com/weir-ml/weir/schedule"
)

// cancel cancels a step before its start and before each of its actions. The next step must not
// be affected.
func (s *suite[T]) cancel(set setting[T]) {
	const m = 2
	at, seen := -1, 0
	stop := func() {}
	set.name += " after a cancelled step"
	set.onAction = func(schedule.Action) {
		if seen == at {
			stop()
		}
		seen++
	}
	s.with(set, func(x *run[T]) {
		want, err := x.step(context.Background(), m)
		if err != nil {
			x.diagnose(err)
			return
		}
		for actions := seen; at < actions-1; at++ {
			s.with(set, func(x *run[T]) {
				ctx, cancel := context.WithCancel(context.Background())
				if stop, seen = cancel, 0; at < 0 {
					cancel()
				}
				if _, err := x.step(ctx, m); !errors.Is(err, context.Canceled) {
					x.trial.fault(AbortMatters, "a cancelled step ends with an error other than context.Canceled: %v", err)
				}
				cancel()
				stop = func() {}
				x.agrees(AbortMatters, m, want, allNumbers)
			})
		}
	})
}

// failures repeats a step, and each time makes another Save fail.
func (s *suite[T]) failures(set setting[T]) {
	set.name += " with an error of Save"
	s.with(set, func(x *run[T]) {
		if _, err := x.step(context.Background(), 1); err != nil {
			x.diagnose(err)
			return
		}
		for n, holds := 1, x.trial.watch.holds; n <= holds; n++ {
			s.with(set, func(x *run[T]) {
				w := x.trial.watch
				w.failAt = n
				_, err := x.step(context.Background(), 1)
				if w.failAt = 0; !errors.Is(err, errInjected) {
					x.trial.fault(Fails, "Save %d of the step fails, but the step does not end with its error but with: %v", n, err)
				}
				x.agrees(AbortMatters, 1, s.one, allNumbers)
			})
		}
	})
}
