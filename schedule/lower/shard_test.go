package lower_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-ml/weir/internal/testing/plantest"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/check"
	"github.com/weir-ml/weir/schedule/lower"
)

// gathered returns the gathered stages for each computation of a list. It fails if a stage is
// gathered twice, released twice, or not released at the end.
func gathered(t require.TestingT, list []schedule.Action) (sets [][]int) {
	var now []int
	for _, a := range list {
		i := slices.Index(now, a.Stage())
		switch kind := a.Kind(); {
		case kind == schedule.Unshard:
			require.Negative(t, i, "%v", a)
			now = append(now, a.Stage())
		case kind == schedule.Reshard:
			require.GreaterOrEqual(t, i, 0, "%v", a)
			now = slices.Delete(slices.Clone(now), i, i+1)
		case kind.Compute():
			sets = append(sets, slices.Sorted(slices.Values(now)))
		}
	}
	require.Empty(t, now)
	return sets
}

// coming returns the stages of the next computations of a list, beginning at index i, but at most active stages.
func coming(list []schedule.Action, i, active int) (stages []int) {
	for _, a := range list[i:] {
		if !slices.Contains(stages, a.Stage()) && len(stages) < active {
			stages = append(stages, a.Stage())
		}
	}
	slices.Sort(stages)
	return stages
}

// requireSharded fails if the gathered stages of a rank are not the stages that it computes next.
func requireSharded(t require.TestingT, p *schedule.Plan, active int) {
	sharded := rewrite(t, p, func(p *schedule.Plan) *schedule.Plan {
		return sharded(t, p, active)
	})
	for rank, list := range plantest.Lists(sharded) {
		sets := gathered(t, list)
		computed := plantest.Lists(p)[rank]
		for i := range computed {
			from := i
			if i > 0 && computed[i-1].Joined() {
				from-- // the pair counts as one
			}
			require.Equal(t, coming(computed, from, active), sets[i], "%s, rank %d, computation %d", p.Name, rank, i)
		}
		require.Equal(t, computed, slices.DeleteFunc(list, func(a schedule.Action) bool { return !a.Kind().Compute() }))
	}
}

func TestShard(t *testing.T) {
	p := planOf(t, []int{0, 0, 0, 0}, 1, "0F0 1F0 2F0 3F0 3B0 2B0 1B0 0B0")
	for active, want := range map[int]string{
		1: "0UNSHARD 0F0 0RESHARD 1UNSHARD 1F0 1RESHARD 2UNSHARD 2F0 2RESHARD 3UNSHARD 3F0 3B0 " +
			"3RESHARD 2UNSHARD 2B0 2RESHARD 1UNSHARD 1B0 1RESHARD 0UNSHARD 0B0 0RESHARD",
		2: "0UNSHARD 1UNSHARD 0F0 0RESHARD 2UNSHARD 1F0 1RESHARD 3UNSHARD 2F0 3F0 3B0 3RESHARD 1UNSHARD 2B0 2RESHARD 0UNSHARD 1B0 1RESHARD 0B0 0RESHARD",
		9: "0UNSHARD 1UNSHARD 2UNSHARD 3UNSHARD 0F0 1F0 2F0 3F0 3B0 3RESHARD 2B0 2RESHARD 1B0 1RESHARD 0B0 0RESHARD",
	} {
		got := sharded(t, p, active)
		require.Equal(t, actions(t, want), plantest.Lists(got)[0])
	}

	sharded := sharded(t, p, 2)
	_, err := lower.Shard(sharded, 2)
	require.ErrorIs(t, err, schedule.ErrParams)
	require.ErrorContains(t, err, "already has 0UNSHARD")
	_, err = lower.Shard(p, 0)
	require.ErrorIs(t, err, schedule.ErrParams)
	_, err = lower.Shard(planOf(t, []int{0, 0}, 2, "0F0 1F0 (0F1;1B0) 0B0 1F1 1B1 0B1"), 1)
	require.ErrorIs(t, err, schedule.ErrParams)
	require.ErrorContains(t, err, "use at least 2")
}

func TestShardOfSchedules(t *testing.T) {
	microbatches := func(ranks int) []int { return []int{1, ranks, 23} }
	everySchedule(t, []int{1, 3, 4}, []int{1, 2, 4}, microbatches, func(t *testing.T, p *schedule.Plan) {
		for _, active := range []int{2, 3} {
			requireSharded(t, p, active)
		}
	})
}

func TestShardOfDisorder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		requireSharded(t, drawDisorder(t), rapid.IntRange(2, 4).Draw(t, "active"))
	})
}

func TestReduceGradients(t *testing.T) {
	reduce := func(t require.TestingT, p *schedule.Plan) *schedule.Plan {
		return rewrite(t, p, func(p *schedule.Plan) *schedule.Plan {
			reduced, err := lower.Reduce(p, 0)
			require.NoError(t, err)
			return reduced
		})
	}
	p := planOf(t, []int{0, 0}, 2, "0F0 1F0 1I0 (1W0;0F1) 0I0 (1F1;0W0) 1I1 (0I1;1W1) 0W1")
	require.Equal(t, actions(t, "0F0 1F0 1I0 (1W0;0F1) 0I0 (1F1;0W0) 1I1 (0I1;1W1) 1REDUCE_GRAD 0W1 0REDUCE_GRAD"), plantest.Lists(reduce(t, p))[0])
	_, err := lower.Reduce(reduce(t, p), 0)
	require.ErrorIs(t, err, schedule.ErrParams)
	require.ErrorContains(t, err, "already has 1REDUCE_GRAD")
	_, err = lower.Reduce(p, 4)
	require.ErrorIs(t, err, schedule.ErrParams)
	require.ErrorContains(t, err, "shard level 4: use 0 to 3")
	sharded, err := lower.Reduce(p, schedule.ShardGradients)
	require.NoError(t, err)
	require.NoError(t, check.Plan(sharded))
	require.Equal(t, actions(t, "0F0 1F0 1I0 1ZERO_GRAD (1W0;0F1) 0I0 0ZERO_GRAD (1F1;0W0) 1I1 (0I1;1W1) 1REDUCE_GRAD 0W1 1WAIT_REDUCE 0REDUCE_GRAD 0WAIT_REDUCE"), plantest.Lists(sharded)[0])
	_, err = lower.Reduce(sharded, 0)
	require.ErrorContains(t, err, "already has")

	p = planOf(t, []int{0, 0}, 1, "0F0 1F0")
	p.Mode = schedule.ForwardOnly
	require.Equal(t, plantest.Lists(p), plantest.Lists(reduce(t, p)), "nothing to reduce")

	rapid.Check(t, func(t *rapid.T) {
		p := drawDisorder(t)
		for rank, list := range plantest.Lists(reduce(t, p)) {
			for _, stage := range p.Placement.On(rank) {
				last := -1
				for i, a := range list {
					if a.Stage() == stage && (a.Kind() == schedule.B || a.Kind() == schedule.W) {
						last = i
					}
				}
				if last < 0 {
					require.NotContains(t, list, schedule.NewAction(schedule.ReduceGrad, stage, 0))
					continue
				}
				if list[last].Joined() {
					last++
				}
				behind := list[last+1:]
				for len(behind) > 0 && behind[0].Kind() == schedule.ReduceGrad && behind[0].Stage() != stage {
					behind = behind[1:]
				}
				require.NotEmpty(t, behind)
				require.Equal(t, schedule.NewAction(schedule.ReduceGrad, stage, 0), behind[0])
			}
		}
	})
}

// Transfers does not move the UNSHARD, RESHARD and REDUCE_GRAD of a plan.
func TestCommsOfSharded(t *testing.T) {
	microbatches := func(ranks int) []int { return []int{2 * ranks} }
	everySchedule(t, []int{3, 4}, []int{1, 2}, microbatches, func(t *testing.T, p *schedule.Plan) {
		sharded := sharded(t, p, 3)
		reduced, err := lower.Reduce(sharded, schedule.ShardWeights)
		require.NoError(t, err)
		for _, capacity := range capacities {
			lowered(t, reduced, capacity)
		}
	})
}

// TestReplicasReduceInOneOrder: replicas that share the microbatches of a batch unevenly reduce gradients in the same
// order under every schedule, at every level, if each copy of the model has a microbatch.
func TestReplicasReduceInOneOrder(t *testing.T) {
	microbatches := func(ranks int) []int { return []int{1, ranks, 2 * ranks, 23} }
	everySchedule(t, []int{1, 2, 4}, []int{1, 2, 4}, microbatches, func(t *testing.T, p *schedule.Plan) {
		name, _, _ := strings.Cut(p.Name, " ")
		s, err := schedule.Find(name)
		require.NoError(t, err)
		more, err := s.Rule(schedule.Params{Placement: p.Placement, Microbatches: p.Microbatches + 1, Mode: p.Mode, Slices: p.Slices, Frozen: p.Frozen})
		if err != nil {
			return
		}
		for _, level := range []int{0, schedule.ShardGradients} {
			plans := []*schedule.Plan{p, more}
			for i := range plans {
				plans[i], err = lower.Reduce(plans[i], level)
				require.NoError(t, err)
				require.NoError(t, check.Plan(plans[i]))
			}
			if err := check.Replicas(plans...); p.Microbatches >= p.Placement.Copies {
				require.NoError(t, err, "%s and %s", p.Name, more.Name)
			}
		}
	})
}

// sharded returns a plan that gathers weights.
func sharded(t require.TestingT, plan *schedule.Plan, gathered int) *schedule.Plan {
	plan, err := lower.Shard(plan, gathered)
	require.NoError(t, err)
	return plan
}
