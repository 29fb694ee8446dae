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
		var err error
		if len(p.Programs) > 1 {
			segments, err = lower.Transfers(p, capacity)
			require.NoError(t, err)
			listed, err = lower.Transfers(list, capacity)
			require.NoError(t, err)
			listed = plantest.Expand(listed)
			require.Equal(t, plantest.Lists(listed), plantest.Lists(segments), p.Name)
		}
		facts := make([]schedule.StageInfo, p.Placement.Stages())
		for stage := range facts {
			facts[stage].Split = true
			facts[stage].Reads[schedule.F], facts[stage].Reads[schedule.B], facts[stage].Reads[schedule.I] = 1, 2, 2
		}
		marked, err := lower.Lifetimes(segments, facts, 2)
		require.NoError(t, err)
		markedList, err := lower.Lifetimes(listed, facts, 2)
		require.NoError(t, err)
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

// TestRampsAreSegments requires that the number of segments only doubles with the number of ranks:
// neither warm-ups and drains nor periods of the length of a group are written out.
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
			p, err := s.Rule(schedule.Params{Placement: placement, Microbatches: 1_000_000})
			require.NoError(t, err)
			p, err = lower.Transfers(p, 0)
			require.NoError(t, err)
			facts := make([]schedule.StageInfo, ranks*test.depth)
			for stage := range facts {
				facts[stage].Split = true
			}
			p, err = lower.Lifetimes(p, facts, 0)
			require.NoError(t, err)
			for _, program := range p.Programs {
				for range schedule.StaticActions(program) {
					written[i]++
				}
			}
		}
		require.Less(t, float64(written[1]), 2.2*float64(written[0]), test.name)
	}
}
