package runner_test

import (
	"context"
	"errors"
	"iter"
	"math"
	"reflect"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/internal/engine/frames"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/stages"
	"github.com/weir-ml/weir/transport"
)

// breaking is a stage with a function that runs before one of its calls.
type breaking struct {
	*times
	backward   bool
	microbatch int
	do         func(ctx context.Context) error
}

func (b *breaking) Forward(ctx context.Context, mb view, in, out []number) error {
	if !b.backward && mb.Index() == b.microbatch && b.do != nil {
		if err := b.do(ctx); err != nil {
			return err
		}
	}
	return b.times.Forward(ctx, mb, in, out)
}

func (b *breaking) Backward(ctx context.Context, mb view, gradOut, gradIn []number) error {
	if b.backward && mb.Index() == b.microbatch && b.do != nil {
		if err := b.do(ctx); err != nil {
			return err
		}
	}
	return b.times.Backward(ctx, mb, gradOut, gradIn)
}

// brokenChain is a chain of three ranks with a stage that breaks.
func brokenChain(t *testing.T, b *breaking, rank int) (*ranksOf, *runner.Runner[number], []*times) {
	r := chained(3)
	rows := rowsOf(r.placement)
	b.times = rows[rank]
	r.change = func(cfg *runner.Config[number]) { cfg.Stages[rank] = b }
	return r, r.group(t, rows), rows
}

// TestAnErrorEndsAllRanks fails on each rank in each direction: Step returns that error,
// everything is released, and the next step works (L8).
func TestAnErrorEndsAllRanks(t *testing.T) {
	for rank := range 3 {
		for _, backward := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				cause := errors.New("planted")
				b := &breaking{backward: backward, microbatch: 2, do: func(context.Context) error { return cause }}
				r, g, rows := brokenChain(t, b, rank)
				_, err := g.Step(t.Context(), 6, r.sources())
				require.ErrorIs(t, err, cause)
				kind := schedule.F
				if backward {
					kind = schedule.B
				}
				var where *transport.StepError
				require.True(t, errors.As(err, &where))
				where.Action = where.Action.WithDrop(0)
				require.Equal(t, &transport.StepError{Rank: rank, Action: schedule.NewAction(kind, rank, 2), Microbatch: 2, Name: rows[rank].name, Err: cause}, where)
				r.released(t)

				b.do = nil
				result := runStep(t, g, 6, r.sources())
				require.EqualValues(t, 0, result.Step, "a failed step does not count")
				require.Equal(t, alone(t, 3, 6), numbersOf(t, result, rows))
				r.released(t)
			})
		}
	}
}

// An error names a microbatch by its number in the batch, even if its number in the plan is different.
func TestAnErrorNamesTheNumberOfTheBatch(t *testing.T) {
	r := &ranksOf{placement: schedule.Bidirectional(2), rule: schedule.DualPipe, capacity: 1}
	rows := rowsOf(r.placement)
	for _, row := range rows {
		row.lossWeight = func(item int) float64 { return math.Abs(float64(item-5)) - 0.5 } // negative for 5 only
	}
	_, err := r.group(t, rows).Step(t.Context(), 8, r.sources())
	var where *transport.StepError
	require.ErrorAs(t, err, &where)
	require.Equal(t, 5, where.Microbatch)
	require.ErrorContains(t, err, "(stage 3 times1, microbatch 5)")
	r.released(t)
}

// TestEveryRankIsToldOfTheFirstError checks the error that each rank's hook receives, and that
// the rank's buffers are still there.
func TestEveryRankIsToldOfTheFirstError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cause := errors.New("planted")
		r := chained(3)
		rows := rowsOf(r.placement)
		var mu sync.Mutex
		told, held := map[int]error{}, map[int][]string{}
		r.change = func(cfg *runner.Config[number]) {
			cfg.Stages[2] = &breaking{times: rows[2], backward: true, do: func(context.Context) error {
				synctest.Wait() // until the others wait for this rank
				return cause
			}}
			cfg.Hooks.Failed = func(rank int, err error, infos iter.Seq[memory.Info]) {
				mu.Lock()
				defer mu.Unlock()
				told[rank] = err
				for info := range infos {
					held[rank] = append(held[rank], info.Name)
				}
			}
		}
		_, err := r.group(t, rows).Step(t.Context(), 2, r.sources())
		require.Equal(t, map[int]error{0: err, 1: err, 2: err}, told)
		require.Contains(t, held[0], "microbatch 1: stage 0 (times0): slot \"x\"")
		require.Contains(t, held[1], "microbatch 1: stage 1 (times1): slot \"x\"")
		require.Contains(t, held[1], "microbatch 1: stage 1 (times1): output 0 in flight")
		require.Equal(t, []string{"microbatch 0: stage 2 (times2): slot \"x\""}, held[2])
		r.released(t)
	})
}

// TestEveryActionOfEveryRankMayBeTheLast ends a step before each action of each rank, in each way
// that a hook can: nothing is left, and the next step returns the same numbers as a step without
// a fault (L8).
func TestEveryActionOfEveryRankMayBeTheLast(t *testing.T) {
	const m = 3
	type way string
	for _, end := range []way{"panic", "exit", "cancel"} {
		synctest.Test(t, func(t *testing.T) {
			r := &ranksOf{placement: schedule.Wave(2, 4), rule: schedule.ZBV, capacity: 1, split: true, stall: -1}
			rows := rowsOf(r.placement)
			cause := errors.New("enough")
			var cancel context.CancelCauseFunc
			on, at := 0, -1 // the rank and its action
			counts := make([]int, 2)
			r.change = func(cfg *runner.Config[number]) {
				cfg.Plan.LookAhead = 1
				cfg.Hooks.Action = func(rank int, _ schedule.Action) {
					counts[rank]++
					if rank != on || counts[rank] != at {
						return
					}
					switch end {
					case "panic":
						panic(cause)
					case "exit":
						runtime.Goexit()
					case "cancel":
						cancel(cause)
					}
				}
			}
			g := r.group(t, rows)
			want := alone(t, 4, m)
			clean := func() []int {
				at = -1
				clear(counts)
				result := runStep(t, g, m, r.sources())
				require.Equal(t, want, numbersOf(t, result, rows))
				return slices.Clone(counts)
			}
			actions := clean()
			for rank, n := range actions {
				for k := range n {
					on, at = rank, k+1
					clear(counts)
					var ctx context.Context
					ctx, cancel = context.WithCancelCause(t.Context())
					var result *runner.Result
					var err error
					thrown, returned := apart(func() { result, err = g.Step(ctx, m, r.sources()) })
					require.Equal(t, end == "cancel", returned)
					switch p, _ := thrown.(*runner.Panic); end {
					case "panic":
						require.NotNil(t, p)
						require.Equal(t, []any{rank, cause}, []any{p.Rank, p.Value})
					case "cancel":
						if err == nil && k == n-1 {
							require.NoError(t, result.Update(func(float64) error { return nil }))
							break // the step ended before the action
						}
						require.ErrorIs(t, err, cause, "rank %d, action %d", rank, k)
					}
					r.released(t)
					cancel(nil)
					require.Equal(t, actions, clean())
				}
			}
		})
	}
}

// failingOnce is a calculator that fails once, when it measures a gradient.
type failingOnce struct {
	calculator
	of  number
	err error
}

func (f *failingOnce) SumSquares(g number) (float64, error) {
	if g == f.of && f.err != nil {
		err := f.err
		f.err = nil
		return 0, err
	}
	return f.calculator.SumSquares(g)
}

// TestEveryHookOfEveryRankMayBeTheLast ends a step in each hook of each rank: nothing is left,
// all ranks agree on whether the step counts, and the next step works (L8).
func TestEveryHookOfEveryRankMayBeTheLast(t *testing.T) {
	cause := errors.New("enough")
	hooks := map[string]func(cfg *runner.Config[number], on int, end func(rank int)){
		"Action": func(cfg *runner.Config[number], _ int, end func(int)) {
			cfg.Hooks.Action = func(rank int, _ schedule.Action) { end(rank) }
		},
		"Microbatch": func(cfg *runner.Config[number], _ int, end func(int)) {
			cfg.Hooks.Microbatch = func(s *memory.Sample) { end(s.Rank) }
		},
		"Peak": func(cfg *runner.Config[number], _ int, end func(int)) {
			cfg.Hooks.Peak = func(rank int, _ iter.Seq[memory.PeakOwner]) { end(rank) }
		},
		"Failed": func(cfg *runner.Config[number], on int, end func(int)) {
			cfg.Gradients = &failingOnce{of: cfg.Stages[on].(*times).grad, err: cause}
			cfg.Hooks.Failed = func(rank int, _ error, _ iter.Seq[memory.Info]) { end(rank) }
		},
	}
	for _, field := range reflect.VisibleFields(reflect.TypeFor[runner.Hooks]()) {
		require.Contains(t, hooks, field.Name)
	}
	for name, hook := range hooks {
		for way, end := range map[string]func(){"panic": func() { panic(cause) }, "exit": runtime.Goexit} {
			for on := range 3 {
				synctest.Test(t, func(t *testing.T) {
					r := chained(3)
					rows := rowsOf(r.placement)
					armed := true
					r.change = func(cfg *runner.Config[number]) {
						for rank, space := range r.spaces {
							cfg.Spaces[rank] = watched{space}
						}
						hook(cfg, on, func(rank int) {
							if rank == on && armed {
								armed = false
								end()
							}
						})
					}
					g := r.group(t, rows)
					thrown, returned := apart(func() { _, _ = g.Step(t.Context(), 4, r.sources()) })
					require.False(t, armed || returned, "%s, %s on rank %d", name, way, on)
					if p, _ := thrown.(*runner.Panic); way == "panic" {
						require.Equal(t, []any{on, cause}, []any{p.Rank, p.Value}, name)
					}
					r.released(t)

					result := runStep(t, g, 4, r.sources())
					require.Equal(t, name == "Peak", result.Step == 1, "a step whose Peak is reported counts")
					require.Equal(t, alone(t, 3, 4), numbersOf(t, result, rows))
					r.released(t)
				})
			}
		}
	}
}

// watched is a space with a peak but no buffers.
type watched struct{ *memory.GCSpace[number] }

func (watched) WatchPeak(bool)                      {}
func (watched) SetPlace(int)                        {}
func (watched) AtPeak() iter.Seq[memory.PeakBuffer] { return func(func(memory.PeakBuffer) bool) {} }

// TestStagesOfOtherRanksLearnOfAFailure has a stage that waits until its context is done.
func TestStagesOfOtherRanksLearnOfAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cause := errors.New("planted")
		r := chained(2)
		rows := rowsOf(r.placement)
		r.change = func(cfg *runner.Config[number]) {
			cfg.Stages[0] = &breaking{times: rows[0], microbatch: 1, do: func(ctx context.Context) error {
				<-ctx.Done()
				return context.Cause(ctx)
			}}
			cfg.Stages[1] = &breaking{times: rows[1], do: func(context.Context) error { return cause }}
		}
		_, err := r.group(t, rows).Step(t.Context(), 6, r.sources())
		var where *transport.StepError
		require.True(t, errors.As(err, &where))
		require.Equal(t, 1, where.Rank, "%v", err)
		require.Equal(t, cause, where.Err)
		r.released(t)
	})
}

// TestAPanicEndsAllRanks panics on each rank: Step panics with the value and the stack of the
// rank (L8).
func TestAPanicEndsAllRanks(t *testing.T) {
	for rank := range 3 {
		synctest.Test(t, func(t *testing.T) {
			value := errors.New("boom")
			b := &breaking{backward: rank == 1, microbatch: 1, do: func(context.Context) error { panic(value) }}
			r, g, rows := brokenChain(t, b, rank)
			thrown, _ := apart(func() { _, _ = g.Step(t.Context(), 6, r.sources()) })
			p, ok := thrown.(*runner.Panic)
			require.True(t, ok, "%v", thrown)
			require.Equal(t, rank, p.Rank)
			require.Equal(t, value, p.Value)
			require.ErrorIs(t, p, value)
			require.Contains(t, string(p.Stack), "runner_test.(*breaking)")
			require.ErrorContains(t, p, "boom")
			r.released(t)
			b.do = nil
			result := runStep(t, g, 6, r.sources())
			require.Equal(t, alone(t, 3, 6), numbersOf(t, result, rows))
		})
	}
}

// apart runs f on its own goroutine, and returns its panic value and whether it returned.
func apart(f func()) (thrown any, returned bool) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { thrown = recover() }()
		f()
		returned = true
	}()
	<-done
	return thrown, returned
}

func TestAShortSourceEndsAllRanks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := chained(3)
		g := r.group(t, rowsOf(r.placement))
		_, err := g.Step(t.Context(), 6, runner.PerRank[number](&counted{}, &counted{ends: 3}, &counted{}))
		require.ErrorIs(t, err, runner.ErrShortBatch)
		require.ErrorContains(t, err, "rank 1 action 1F3 ")
		require.ErrorContains(t, err, "3 of 6 microbatches")
		r.released(t)
		runStep(t, g, 6, r.sources())
	})
}

// TestALeakOnOneRankIsNamed has a stage that keeps an input received from another rank, and one
// that keeps a tensor that it sends (L6).
func TestALeakOnOneRankIsNamed(t *testing.T) {
	for _, tc := range []struct {
		name       string
		forward    func(s *times, mb view, in, out []number) error
		rank       int
		microbatch int
		call       frames.Call
		what       string
	}{
		{"keeps what it received", func(s *times, mb view, in, out []number) error {
			mb.Retain(in[0])
			return s.Forward(context.Background(), mb, in, out)
		}, 1, 0, frames.InBackward, "a tensor it saved was released with this action"},
		{"keeps what it sends", func(s *times, mb view, in, out []number) error {
			err := s.Forward(context.Background(), mb, in, out)
			mb.Retain(out[0])
			return err
		}, 1, 0, frames.None, "a tensor it sent was released with this action"},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := chained(3)
			rows := rowsOf(r.placement)
			r.change = func(cfg *runner.Config[number]) {
				cfg.Stages[1] = &stages.Func[number]{
					Declares: rows[1].Spec(), Parameters: rows[1].Params(), BackwardFunc: rows[1].Backward,
					ForwardFunc: func(_ context.Context, mb view, in, out []number) error { return tc.forward(rows[1], mb, in, out) },
				}
			}
			_, err := r.group(t, rows).Step(t.Context(), 4, r.sources())
			var leak *batchctx.LeakError
			require.True(t, errors.As(err, &leak), "%v", err)
			require.Equal(t, []any{tc.rank, 1, tc.microbatch, tc.call}, []any{leak.Rank, leak.Stage, leak.Microbatch, leak.Call}, tc.name)
			require.Contains(t, leak.What, tc.what)
			var where *transport.StepError
			require.True(t, errors.As(err, &where))
			require.Equal(t, tc.rank, where.Rank)
		})
	}
}

// TestRanksThatBeginOtherStepsAreRefused starts two runners that differ, as in two processes:
// both errors name both values, and no rank runs an action.
func TestRanksThatBeginOtherStepsAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		change func(cfg *runner.Config[number])
		m      int
		want   []string
	}{
		"steps":        {func(cfg *runner.Config[number]) { cfg.FirstStep = 1 }, 64, []string{"rank 0 begins step 0 (", "rank 1 begins step 1 ("}},
		"microbatches": {func(*runner.Config[number]) {}, 65, []string{"with 64 microbatches", "with 65 microbatches"}},
		"plans":        {func(cfg *runner.Config[number]) { cfg.Schedule = "gpipe" }, 64, []string{"1f1b", "gpipe"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			rows := rowsOf(schedule.Looped(2, 2))
			links := newLinks(t, 2, 1, 0)
			var ranks sync.WaitGroup
			var errs [2]error
			for rank, m := range []int{64, c.m} {
				cfg := only(rows, rank, links)
				if rank == 1 {
					c.change(&cfg)
				}
				cfg.Hooks.Action = func(int, schedule.Action) { t.Error(name, "an action runs") }
				one := newRunner(t, cfg)
				ranks.Go(func() { _, errs[rank] = one.Step(t.Context(), m, &counted{}) })
			}
			ranks.Wait()
			for _, err := range errs {
				require.ErrorIs(t, err, transport.ErrRanks, name)
				for _, want := range c.want {
					require.ErrorContains(t, err, want, name)
				}
			}
		})
	}
}

// TestTheModeIsCompared lets one rank train and another one evaluate.
func TestTheModeIsCompared(t *testing.T) {
	rows := rowsOf(schedule.Looped(2, 2))
	links := newLinks(t, 2, 1, 0)
	one, other := newRunner(t, only(rows, 0, links)), newRunner(t, only(rows, 1, links))
	var ranks sync.WaitGroup
	var trained, evaluated error
	ranks.Go(func() { _, trained = one.Step(t.Context(), 2, &counted{}) })
	ranks.Go(func() { _, evaluated = other.Evaluate(t.Context(), 2, &counted{}) })
	ranks.Wait()
	require.ErrorContains(t, trained, "(training, ")
	require.ErrorContains(t, trained, "(forward-only, ")
	require.ErrorIs(t, evaluated, transport.ErrRanks)
}

// TestProcessesEndTogether fails on one of two ranks that only their links join, as in two
// processes: before its first action, and by a panic. The other rank ends immediately (L8).
func TestProcessesEndTogether(t *testing.T) {
	cause := errors.New("planted")
	for name, fail := range map[string]func(cfg *runner.Config[number], row *times){
		"no plan": func(cfg *runner.Config[number], _ *times) {
			cfg.Schedule, cfg.Plan.Rule = "", func(schedule.Params) (*schedule.Plan, error) { return nil, cause }
		},
		"a rule panics": func(cfg *runner.Config[number], _ *times) {
			cfg.Schedule, cfg.Plan.Rule = "", func(schedule.Params) (*schedule.Plan, error) { panic(cause) }
		},
		"a panic": func(cfg *runner.Config[number], row *times) {
			cfg.Stages[1] = &breaking{times: row, do: func(context.Context) error { panic(cause) }}
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := chained(2)
			rows := rowsOf(r.placement)
			links := newLinks(t, 2, 1, 0)
			begin := time.Now()
			var ranks sync.WaitGroup
			var err error
			for rank := range 2 {
				cfg := only(rows, rank, links)
				if rank == 1 {
					fail(&cfg, rows[1])
				}
				one := newRunner(t, cfg)
				ranks.Go(func() {
					if rank == 1 {
						defer func() { _ = recover() }()
						_, _ = one.Step(t.Context(), 4, &counted{})
						return
					}
					_, err = one.Step(t.Context(), 4, &counted{})
				})
			}
			ranks.Wait()
			require.Error(t, err, name)
			require.Zero(t, time.Since(begin), "%s: %v", name, err)
			switch name {
			case "a panic":
				require.ErrorContains(t, err, "rank 1 action 1F0 (stage 1 times1, microbatch 0): it did not return")
			case "a rule panics":
				require.ErrorContains(t, err, "it did not return")
			default:
				require.ErrorIs(t, err, cause)
			}
		})
	}
}
