package lower_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/testing/plantest"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/check"
	"github.com/weir-ml/weir/schedule/lower"
)

// TestSkippingChangesNothing runs every pass on every schedule, in segments and as a plain list,
// which has no repeats to skip. Both give the same actions. With many ranks, warm-ups and drains
// are segments too.
func TestSkippingChangesNothing(t *testing.T) {
	microbatches := func(ranks int) []int { return []int{2*ranks + 1, 40 + ranks} }
	everySchedule(t, []int{1, 2, 3, 5}, []int{1, 2}, microbatches, sameAsLists)
	everySchedule(t, []int{20}, []int{1, 2}, func(int) []int { return []int{45} }, sameAsLists)
}

func sameAsLists(t *testing.T, p *schedule.Plan) {
	list := plantest.Expand(p)
	rng := rand.New(rand.NewPCG(plantest.Seed(), uint64(p.Microbatches)))
	for _, p := range []*schedule.Plan{p, plantest.Nested(p, rng)} {
		sameAsList(t, p, list, rng)
	}
}

func sameAsList(t *testing.T, p, list *schedule.Plan, rng *rand.Rand) {
	for _, capacity := range []int{schedule.Unlimited, 0, 1} {
		segments, listed := p, list
		if len(p.Programs) > 1 {
			segments = transferred(t, p, capacity)
			listed = transferred(t, list, capacity)
			listed = plantest.Expand(listed)
			require.Equal(t, plantest.Lists(listed), plantest.Lists(segments), p.Name)
		}
		facts := make([]schedule.StageInfo, p.Placement.Stages())
		for stage := range facts {
			facts[stage].Split = true
			facts[stage].Reads[schedule.F], facts[stage].Reads[schedule.B], facts[stage].Reads[schedule.I] = 1, 2, 2
		}
		marked := withLifetimes(t, segments, facts, 2)
		markedList := withLifetimes(t, listed, facts, 2)
		require.Equal(t, plantest.Lists(markedList), plantest.Lists(marked), p.Name)
		require.Equal(t, []any{markedList.Parts, markedList.StageWindows, markedList.SendWindows, markedList.EntryWindows},
			[]any{marked.Parts, marked.StageWindows, marked.SendWindows, marked.EntryWindows}, p.Name)

		var least [3]int64
		for i, p := range []*schedule.Plan{marked, markedList, plantest.Nested(marked, rng)} {
			proof, err := check.Prove(p, schedule.Unlimited)
			require.NoError(t, err)
			least[i], err = proof.LeastCapacity()
			require.NoError(t, err)
		}
		require.Equal(t, least[1], least[0], p.Name)
		require.Equal(t, least[1], least[2], p.Name)
	}
}

// TestRampsAreSegments requires that the actions in all bodies only double with the number of ranks: neither
// warm-ups and drains nor periods of the length of a group are written out.
func TestRampsAreSegments(t *testing.T) {
	for _, test := range []struct {
		name  string
		depth int
	}{{"gpipe", 1}, {"1f1b", 1}, {"1f1b", 2}, {"zb-h1", 1}, {"zb-v", 2}, {"depth-first", 1}, {"interleaved", 2}, {"zb1p", 2}, {"grouped-interleave", 2}} {
		s, err := schedule.Find(test.name)
		require.NoError(t, err)
		var written [2]int
		for i, ranks := range []int{128, 256} {
			placement, err := s.Place(ranks, ranks*test.depth)
			require.NoError(t, err)
			p := plantest.Made(t, s.Rule, schedule.Params{Placement: placement, Microbatches: 1_000_000})
			p = transferred(t, p, 0)
			facts := make([]schedule.StageInfo, ranks*test.depth)
			for stage := range facts {
				facts[stage].Split = true
			}
			p = withLifetimes(t, p, facts, 0)
			for _, program := range p.Programs {
				for range schedule.StaticActions(program) {
					written[i]++
				}
			}
		}
		require.Less(t, float64(written[1]), 2.2*float64(written[0]), test.name)
	}
}

// The clock visits the warm-up and the drain of a plan, and little of its steady state, because it
// finds a period soon after the last rank has reached the steady state.
func TestClockSkipsTheSteadyState(t *testing.T) {
	const ranks = 100
	for _, name := range []string{"zb-v", "dualpipe", "dualpipev"} {
		plan := plantest.Named(t, name, ranks, 0, 1_000_000)
		least := int64(0) // the number of actions of warm-ups and drains
		for _, program := range plan.Programs {
			for _, segment := range program {
				if segment.Repeat < 100_000 {
					least += int64(len(segment.Body)) * int64(segment.Repeat)
				}
			}
		}
		require.LessOrEqual(t, lower.Clocked(plan), least*3/2, name)
	}
}
