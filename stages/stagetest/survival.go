package stagetest

import (
	"context"
	"errors"

	"github.com/weir-ml/weir/schedule"
)

// cancel cancels a step before each of its actions in turn. The next step must not be affected.
func (s *suite[T]) cancel(set setting[T]) {
	const m = 2
	at, seen := -1, 0
	stop := func() {}
	set.name += " after a cancelled step"
	set.before = func(schedule.Action) {
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
			t, ok := s.open()
			if !ok {
				return
			}
			if y, ok := t.start(set); ok {
				ctx, cancel := context.WithCancel(context.Background())
				if stop, seen = cancel, 0; at < 0 {
					cancel()
				}
				if _, err := y.step(ctx, m); err == nil || !errors.Is(err, context.Canceled) {
					t.fault(AbortMatters, "a cancelled step ends with an error other than context.Canceled: %v", err)
				}
				cancel()
				stop = func() {}
				y.agrees(AbortMatters, m, want, allNumbers)
			}
			t.close()
		}
	})
}

// failures makes every Save of a step fail in turn.
func (s *suite[T]) failures(set setting[T]) {
	set.name += " with an error of Save"
	s.with(set, func(x *run[T]) {
		w := x.trial.watch
		if _, err := x.step(context.Background(), 1); err != nil {
			x.diagnose(err)
			return
		}
		for n, holds := 1, w.holds; n <= holds; n++ {
			t, ok := s.open()
			if !ok {
				return
			}
			if y, ok := t.start(x.setting); ok {
				t.watch.failAt = n
				_, err := y.step(context.Background(), 1)
				if t.watch.failAt = 0; !errors.Is(err, errInjected) {
					t.fault(Fails, "Save %d of the step fails, but the step does not end with its error but with: %v", n, err)
				}
				y.agrees(AbortMatters, 1, s.one, allNumbers)
			}
			t.close()
		}
	})
}
