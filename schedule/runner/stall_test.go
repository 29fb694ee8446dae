package runner_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/check"
	"github.com/weir-ml/weir/schedule/lower"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/schedule/waitgraph"
	"github.com/weir-ml/weir/transport"
)

// unrolled returns a rule for chains. After all passes, the rule calls change with the actions of each
// rank.
func unrolled(capacity int, change func(ranks [][]schedule.Action)) schedule.Rule {
	return func(p schedule.Params) (*schedule.Plan, error) {
		plan, err := schedule.OneFOneB(p)
		if err != nil {
			return nil, err
		}
		if plan, err = lower.Transfers(plan, capacity); err != nil {
			return nil, err
		}
		facts := make([]schedule.StageInfo, p.Placement.Stages())
		facts[0].Reads[schedule.F] = 1
		if plan, err = lower.Lifetimes(plan, facts, 1); err != nil {
			return nil, err
		}
		ranks := make([][]schedule.Action, p.Placement.Ranks)
		for rank := range ranks {
			ranks[rank] = slices.Collect(plan.All(rank))
		}
		change(ranks)
		changed := *plan
		changed.Programs = make([][]schedule.Segment, len(ranks))
		for rank, actions := range ranks {
			changed.Programs[rank] = []schedule.Segment{{Body: actions, Repeat: 1}}
		}
		return &changed, nil
	}
}

// index returns the index of an action, with any drop bits, or -1.
func index(actions []schedule.Action, kind schedule.Kind, stage, mb int) int {
	return slices.IndexFunc(actions, func(a schedule.Action) bool { return a.WithDrop(0) == schedule.NewAction(kind, stage, mb) })
}

// move moves an action right after another one.
func move(actions []schedule.Action, from, to int) {
	a := actions[from]
	if from < to {
		copy(actions[from:], actions[from+1:to+1])
		actions[to] = a
		return
	}
	copy(actions[to+2:from+1], actions[to+1:from])
	actions[to+1] = a
}

// planted makes rank 0 wait for a gradient before it sends the activation that the gradient
// depends on.
func planted(ranks [][]schedule.Action) {
	move(ranks[0], index(ranks[0], schedule.RecvB, 0, 0), index(ranks[0], schedule.F, 0, 0))
}

// TestADeadlockIsReportedAsTheCheckDoes runs a plan with a deadlock without the check: the step ends immediately, with
// the same cycle.
func TestADeadlockIsReportedAsTheCheckDoes(t *testing.T) {
	for _, ranks := range []int{2, 3, 4} {
		synctest.Test(t, func(t *testing.T) {
			r := chained(ranks)
			r.rule = unrolled(1, planted)
			g := r.group(t, rowsOf(r.placement))
			_, err := g.Step(t.Context(), 6, r.sources())
			require.ErrorIs(t, err, check.ErrInvalidPlan, "the check refuses it")

			begin := time.Now()
			plan, err := r.rule(schedule.Params{Placement: r.placement, Microbatches: 6})
			require.NoError(t, err)
			refused := check.Plan(plan)
			require.ErrorIs(t, refused, waitgraph.ErrDeadlock)
			r.change = func(cfg *runner.Config[number]) { cfg.Plan.Unchecked = true }
			_, err = r.group(t, rowsOf(r.placement)).Step(t.Context(), 6, r.sources())
			require.ErrorIs(t, err, waitgraph.ErrDeadlock)
			var stall *transport.StallError
			require.True(t, errors.As(err, &stall))
			require.ErrorContains(t, refused, waitgraph.DescribeCycle(stall.WaitChain))
			require.ErrorContains(t, err, waitgraph.DescribeCycle(stall.WaitChain))
			require.Zero(t, stall.IdleFor)
			require.Zero(t, time.Since(begin), "no time passes")
			require.Equal(t, schedule.NewAction(schedule.RecvB, 0, 0), stall.WaitChain[0].Action.WithDrop(0))
			var where *transport.StepError
			require.True(t, errors.As(err, &where))
			require.Equal(t, 0, where.Rank, "the lowest waiting rank")
			r.released(t)
		})
	}
}

// TestRendezvousDeadlocksWhereLinksAreTooSmall runs a plan for links of capacity 1 over links of
// capacity 0.
func TestRendezvousDeadlocksWhereLinksAreTooSmall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := chained(2)
		r.capacity = 0
		r.rule = unrolled(1, func(ranks [][]schedule.Action) {
			a := ranks[0] // both send first, then both receive
			move(a, index(a, schedule.RecvB, 0, 0), index(a, schedule.SendF, 0, 1))
			b := ranks[1]
			move(b, index(b, schedule.SendB, 1, 0), index(b, schedule.B, 1, 0))
		})
		r.change = func(cfg *runner.Config[number]) { cfg.Plan.Unchecked = true }
		g := r.group(t, rowsOf(r.placement))
		_, err := g.Step(t.Context(), 2, r.sources())
		require.ErrorIs(t, err, waitgraph.ErrDeadlock)
		require.ErrorContains(t, err, "0SEND_F1, and waits for 1RECV_F1 of rank 1")
		require.ErrorContains(t, err, "1SEND_B0, and waits for 0RECV_B0 of rank 0")
		r.released(t)
	})
}

// TestWhatNeverComesIsReportedAtOnce removes a send from a plan: its receiver waits for a rank
// that reaches its end.
func TestWhatNeverComesIsReportedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := chained(3)
		r.rule = unrolled(1, func(ranks [][]schedule.Action) {
			for _, kind := range []schedule.Kind{schedule.SendB, schedule.WaitB} {
				at := index(ranks[2], kind, 2, 3)
				ranks[2] = slices.Delete(ranks[2], at, at+1)
			}
		})
		r.change = func(cfg *runner.Config[number]) { cfg.Plan.Unchecked, cfg.Memory.TolerateLeaks = true, true }
		begin := time.Now()
		_, err := r.group(t, rowsOf(r.placement)).Step(t.Context(), 4, r.sources())
		var stall *transport.StallError
		require.True(t, errors.As(err, &stall), "%v", err)
		require.NotErrorIs(t, err, waitgraph.ErrDeadlock)
		require.ErrorContains(t, err, "1RECV_B3, and waits for 2SEND_B3 of rank 2")
		require.Zero(t, time.Since(begin))
		r.released(t)
	})
}

// TestAStageThatTakesTooLongIsReported has a stage that blocks until its context is done.
func TestAStageThatTakesTooLongIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := chained(3)
		r.stall = 4 * time.Second
		rows := rowsOf(r.placement)
		r.change = func(cfg *runner.Config[number]) {
			cfg.Stages[1] = &breaking{times: rows[1], backward: true, microbatch: 1, do: func(ctx context.Context) error {
				time.Sleep(3 * time.Second) // others wait, which is not a stall yet
				<-ctx.Done()
				return context.Cause(ctx)
			}}
		}
		begin := time.Now()
		_, err := r.group(t, rows).Step(t.Context(), 4, r.sources())
		var stall *transport.StallError
		require.True(t, errors.As(err, &stall), "%v", err)
		require.NotErrorIs(t, err, waitgraph.ErrDeadlock)
		require.GreaterOrEqual(t, time.Since(begin), 4*time.Second)
		require.LessOrEqual(t, time.Since(begin), 5*time.Second)
		require.ErrorContains(t, err, "no rank has begun an action for 4s")
		require.ErrorContains(t, err, "rank 1, step 0, runs 1B1")
		require.ErrorContains(t, err, "0RECV_B1, has waited 5s for 1SEND_B1 of rank 1")
		r.released(t)
	})
}

// TestEveryStallIsReported has a stage that blocks in several steps: the watch starts again in
// each.
func TestEveryStallIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := chained(2)
		r.stall = 4 * time.Second
		rows := rowsOf(r.placement)
		r.change = func(cfg *runner.Config[number]) {
			cfg.Stages[1] = &breaking{times: rows[1], do: func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }}
		}
		g := r.group(t, rows)
		for range 3 {
			_, err := g.Step(t.Context(), 4, r.sources())
			require.ErrorContains(t, err, "no rank has begun an action for 4s")
			r.released(t)
		}
	})
}

// TestNobodyWaitsForOneWhoComputes has two ranks that compute for longer than the stall timeout,
// after one has waited for the other.
func TestNobodyWaitsForOneWhoComputes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := chained(2)
		r.stall = 4 * time.Second
		rows := rowsOf(r.placement)
		r.change = func(cfg *runner.Config[number]) {
			slow := func(context.Context) error { time.Sleep(time.Minute); return nil }
			cfg.Hooks.Action = func(rank int, a schedule.Action) {
				if rank == 0 && a.Kind() == schedule.F && a.Microbatch() == 0 {
					time.Sleep(2 * time.Second) // rank 1 waits, and the watch is on
				}
			}
			cfg.Stages[0] = &breaking{times: rows[0], microbatch: 1, do: slow}
			cfg.Stages[1] = &breaking{times: rows[1], do: slow}
		}
		_, err := r.group(t, rows).Step(t.Context(), 2, r.sources())
		require.NoError(t, err)
	})
}

// TestSlowIsNotStalled has actions that take almost as long as the stall timeout.
func TestSlowIsNotStalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := chained(3)
		r.stall = 4 * time.Second
		r.change = func(cfg *runner.Config[number]) {
			cfg.Hooks.Action = func(_ int, a schedule.Action) {
				if a.Kind().Compute() {
					time.Sleep(3 * time.Second)
				}
			}
		}
		_, err := r.group(t, rowsOf(r.placement)).Step(t.Context(), 8, r.sources())
		require.NoError(t, err)
	})
}

// TestAnUncheckedPlanMustBeWhole refuses plans that cannot be run at all.
func TestAnUncheckedPlanMustBeWhole(t *testing.T) {
	r := chained(2)
	r.change = func(cfg *runner.Config[number]) { cfg.Plan.Unchecked = true }
	g := r.group(t, rowsOf(r.placement))
	_, err := g.Step(t.Context(), 2, r.sources())
	require.ErrorIs(t, err, runner.ErrPlan, "without lifetimes")
	r.rule = unrolled(1, func(ranks [][]schedule.Action) { ranks[0][0] = schedule.NewAction(schedule.F, 1, 0) })
	g = r.group(t, rowsOf(r.placement))
	_, err = g.Step(t.Context(), 2, r.sources())
	require.ErrorIs(t, err, runner.ErrPlan)
	require.ErrorContains(t, err, "1F0 on rank 0, which does not have the stage")
	r.rule = unrolled(1, func(ranks [][]schedule.Action) { ranks[0][0] = schedule.NewAction(schedule.F, 2, 0) })
	_, err = r.group(t, rowsOf(r.placement)).Step(t.Context(), 2, r.sources())
	require.ErrorContains(t, err, "2F0 on rank 0, which does not have the stage", "there are two stages")
}
