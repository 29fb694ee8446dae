package schedule_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-ml/weir/schedule"
)

// checkLifetimes compares the pass with the oracle and proves the result. It
// returns nil where the facts cannot be put into a plan.
func checkLifetimes(t require.TestingT, p *schedule.Plan, facts []schedule.Facts) *schedule.Plan {
	p = quantized(t, p, facts)
	want := newOracle(p, facts)
	got, err := schedule.Lifetimes(p, facts, parts)
	if want.uneven || want.unread {
		require.ErrorIs(t, err, schedule.ErrFacts)
		return nil
	}
	require.NoError(t, err)
	require.Equal(t, want.windows, got.Windows)
	require.Equal(t, want.entries, got.Entries)
	if got.Outgoing != nil {
		require.Equal(t, want.outgoing, got.Outgoing)
	} else {
		require.Zero(t, sum(want.outgoing))
	}
	for rank := range p.Programs {
		bare, marked := slices.Collect(p.All(rank)), slices.Collect(got.All(rank))
		require.Len(t, marked, len(bare))
		for i, a := range marked {
			require.Equal(t, bare[i].WithDrop(want.drops[rank][i]), a, "rank %d, action %d: %v~%v", rank, i, a, a.Drop())
		}
	}
	require.NoError(t, schedule.Check(got))

	// What the pass declares is not only enough, it is the least that will do.
	for stage := range got.Windows {
		less := *got
		less.Windows = slices.Clone(got.Windows)
		less.Windows[stage]--
		requireCodes(t, schedule.Check(&less), schedule.WindowExceeded)
	}
	for stage, n := range got.Outgoing {
		if n == 0 {
			continue
		}
		less := *got
		less.Outgoing = slices.Clone(got.Outgoing)
		less.Outgoing[stage]--
		requireCodes(t, schedule.Check(&less), schedule.OutgoingExceeded)
	}
	for rank := range got.Entries {
		less := *got
		less.Entries = slices.Clone(got.Entries)
		less.Entries[rank]--
		requireCodes(t, schedule.Check(&less), schedule.EntriesExceeded)
	}
	return got
}

func requireCodes(t require.TestingT, err error, codes ...schedule.Code) {
	require.ErrorIs(t, err, schedule.ErrInvalidPlan)
	require.Equal(t, codes, codesOf(err), "%v", err)
}

func TestLifetimesOfGenerators(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		params := drawParams(t)
		rule := schedule.DepthFirst
		if rapid.Bool().Draw(t, "breadth-first") {
			rule, params.Group = schedule.BreadthFirst, 0
		}
		p, err := rule(params)
		require.NoError(t, err)
		split := make([]bool, p.Placement.Stages())
		require.True(t, ordered(p, split))
		checkLifetimes(t, p, drawFacts(t, p, split))
	})
}

func TestLifetimesOfPipelined(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, split := drawPipelined(t)
		require.Equal(t, ordered(p, split), schedule.Check(p) == nil)
		facts := drawFacts(t, p, split)
		if !ordered(p, split) {
			_, err := schedule.Lifetimes(p, facts, parts)
			require.ErrorIs(t, err, schedule.ErrInvalidPlan)
			return
		}
		if got := checkLifetimes(t, p, facts); got != nil {
			require.LessOrEqual(t, len(got.Programs[0]), 64)
		}
	})
}

func TestLifetimesOfLists(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, split := drawList(t)
		require.True(t, ordered(p, split))
		checkLifetimes(t, p, drawFacts(t, p, split))
	})
}

func TestLifetimesOfChunks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, split := drawChunks(t)
		require.Equal(t, ordered(p, split), schedule.Check(p) == nil)
		if ordered(p, split) {
			checkLifetimes(t, p, drawFacts(t, p, split))
		}
	})
}

// everyStage returns the list of as many true as the plan has stages.
func everyStage(p *schedule.Plan) []bool { return slices.Repeat([]bool{true}, p.Placement.Stages()) }

// The buffers of what is sent and received, the copies of a model, slices, and weights
// that come and go.
func TestLifetimesOfLowered(t *testing.T) {
	for _, s := range schedule.Schedules() {
		t.Run(s.Name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				ranks, depth := rapid.IntRange(1, 4).Draw(t, "ranks"), rapid.IntRange(1, 2).Draw(t, "depth")
				plans := variants(t, s, ranks, depth, rapid.IntRange(1, 14).Draw(t, "microbatches"))
				if len(plans) == 0 {
					return
				}
				p := lower(t, rapid.SampledFrom(plans).Draw(t, "plan"), rapid.SampledFrom(capacities).Draw(t, "capacity"))
				if rapid.Bool().Draw(t, "sharded") {
					var err error
					p, err = schedule.Shard(p, 2)
					require.NoError(t, err)
					p, err = schedule.ReduceGradients(p)
					require.NoError(t, err)
				}
				checkLifetimes(t, p, drawFacts(t, p, everyStage(p)))
			})
		})
	}
}

func TestLifetimesOfDisorder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := lower(t, drawDisorder(t), rapid.SampledFrom(capacities).Draw(t, "capacity"))
		checkLifetimes(t, p, drawFacts(t, p, everyStage(p)))
	})
}

// In the steady state of 1F1B each rank has two or three messages on their way, however
// many microbatches there are, and a microbatch retires soon after its backward.
func TestLifetimesOfOneFOneB(t *testing.T) {
	p, err := schedule.OneFOneB(schedule.Params{Placement: schedule.Looped(4, 4), Microbatches: 1_000_000})
	require.NoError(t, err)
	lowered, err := schedule.Comms(p, schedule.Unlimited)
	require.NoError(t, err)
	marked, err := schedule.Lifetimes(lowered, make([]schedule.Facts, 4), 0)
	require.NoError(t, err)
	require.Equal(t, []int{4, 3, 2, 1}, marked.Windows)
	require.Equal(t, []int{3, 3, 3, 2}, marked.Outgoing)
}

// A plan that does not wait for what it sends has no lifetimes.
func TestLifetimesNeedWaits(t *testing.T) {
	p, err := schedule.OneFOneB(schedule.Params{Placement: schedule.Looped(2, 2), Microbatches: 3})
	require.NoError(t, err)
	lowered, err := schedule.Comms(p, schedule.Unlimited)
	require.NoError(t, err)
	for rank, list := range lists(lowered) {
		list = slices.DeleteFunc(list, func(a schedule.Action) bool { return a.Kind() == schedule.WaitF || a.Kind() == schedule.WaitB })
		lowered.Programs[rank] = []schedule.Segment{{Body: list, Repeat: 1}}
	}
	_, err = schedule.Lifetimes(lowered, make([]schedule.Facts, 2), 0)
	require.ErrorIs(t, err, schedule.ErrFacts)
	require.ErrorContains(t, err, "rank 0 never waits for 0SEND_F2, so its buffer never ends: take a plan of Comms")
}
