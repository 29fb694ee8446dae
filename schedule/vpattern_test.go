package schedule_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-ml/weir/internal/testing/plantest"
	"github.com/weir-ml/weir/schedule"
)

// halfPattern and minPattern return the starts of the first F0, F1, I1 and I0 of a rank of the V, as in zbv_greedy.py
// of sail-sg/zero-bubble, and the maximum number of microbatches in flight, counting each stage separately.
func halfPattern(ranks, rank int) (starts [4]int, inFlight int) {
	d := 0
	if ranks%2 == 0 {
		d = 3
	}
	return [4]int{2 * rank, 3*ranks - rank - 2, 3*ranks + d + 2*rank - 1, 6*ranks + d - rank - 2}, 2 * ((ranks + 2) / 2)
}

func minPattern(ranks, rank int) (starts [4]int, inFlight int) {
	d := 0
	if ranks%3 == 0 {
		d = 2
	}
	return [4]int{rank, 2*ranks - rank - 1, 2*ranks + d + rank, 4*ranks + d - rank - 1}, 2 * ((ranks + 4) / 3)
}

// steps returns the actions of a microbatch on a rank of the V.
func steps(ranks, rank int) [6]schedule.Action {
	s0, s1 := rank, 2*ranks-1-rank
	return [6]schedule.Action{
		schedule.NewAction(schedule.F, s0, 0), schedule.NewAction(schedule.F, s1, 0), schedule.NewAction(schedule.I, s1, 0),
		schedule.NewAction(schedule.I, s0, 0), schedule.NewAction(schedule.W, s1, 0), schedule.NewAction(schedule.W, s0, 0),
	}
}

// slots returns the pattern of a rank, slot by slot: the four steps of every microbatch, and each W in the first free
// slot after its I. A slot without a step holds None. It fails if two steps are in one slot.
func slots(t require.TestingT, ranks, rank, microbatches int, starts [4]int) []schedule.Action {
	steps := steps(ranks, rank)
	list := make([]schedule.Action, starts[3]+6*microbatches+12)
	for step, start := range starts {
		for mb := range (len(list) - start + 5) / 6 {
			require.Zero(t, list[start+6*mb], "P=%d: two steps of rank %d are in a slot", ranks, rank)
			list[start+6*mb] = steps[step].Shift(mb)
		}
	}
	var weights []schedule.Action
	for slot, a := range list {
		switch {
		case a.Kind() == schedule.I:
			weights = append(weights, schedule.NewAction(schedule.W, a.Stage(), a.Microbatch()))
		case a == 0 && len(weights) > 0:
			list[slot], weights = weights[0], weights[1:]
		}
	}
	return list
}

// Each pattern is valid without overtaking: every action comes after its dependencies, and no rank exceeds its
// maximum number of microbatches in flight.
func TestPatternsWork(t *testing.T) {
	for name, pattern := range map[string]func(ranks, rank int) ([4]int, int){"half": halfPattern, "min": minPattern} {
		for ranks := 1; ranks <= 18; ranks++ {
			const microbatches = 12
			when := map[schedule.Action]int{}
			for rank := range ranks {
				starts, inFlight := pattern(ranks, rank)
				held := 0
				for slot, a := range slots(t, ranks, rank, microbatches, starts) {
					when[a] = slot
					switch a.Kind() {
					case schedule.F:
						held++
					case schedule.W:
						held--
					}
					require.LessOrEqual(t, held, inFlight, "%s P=%d", name, ranks)
				}
			}
			plan := &schedule.Plan{Placement: schedule.Wave(ranks, 2*ranks), Microbatches: microbatches}
			backward := func(stage, mb int) schedule.Action { return schedule.NewAction(schedule.I, stage, mb) }
			for a, slot := range when {
				if a != 0 && a.Microbatch() < microbatches {
					for _, need := range plantest.Needs(plan, a, backward) {
						require.Less(t, when[need], slot, "%s P=%d: %v needs %v", name, ranks, a, need)
					}
				}
			}
		}
	}
}

// follow returns the actions of the ranks of a V that follow a pattern: in every slot, each rank runs the first of its
// actions that is ready and for which it has room. After the last forward of its first stage, a rank runs a W only if
// nothing else can run.
func follow(t require.TestingT, p schedule.Params, pattern func(ranks, rank int) ([4]int, int)) [][]schedule.Action {
	ranks := p.Placement.Ranks
	rest, run := make([][]schedule.Action, ranks), make([][]schedule.Action, ranks)
	forwards := make([]int, ranks) // by rank: the number of forwards that its first stage has not run
	for rank := range rest {
		starts, _ := pattern(ranks, rank)
		rest[rank] = slices.DeleteFunc(slots(t, ranks, rank, p.Microbatches, starts), func(a schedule.Action) bool {
			return a.Kind() == schedule.None || a.Microbatch() >= p.Microbatches
		})
		forwards[rank] = p.Microbatches
	}
	plan := &schedule.Plan{Placement: p.Placement, Microbatches: p.Microbatches}
	backward := func(stage, mb int) schedule.Action { return schedule.NewAction(schedule.I, stage, mb) }
	done := map[schedule.Action]bool{}
	for left := 6 * ranks * p.Microbatches; left > 0; {
		var now []schedule.Action
		for rank, list := range rest {
			_, inFlight := pattern(ranks, rank)
			change := map[schedule.Kind]int{schedule.F: 1, schedule.W: -1}
			held := 0
			for _, a := range run[rank] {
				held += change[a.Kind()]
			}
			chosen, most := -1, held
			for i, a := range list {
				ready := a.Kind() != schedule.F || most < inFlight
				for _, need := range plantest.Needs(plan, a, backward) {
					ready = ready && done[need]
				}
				if a.Microbatch() > 0 { // microbatches ascend
					ready = ready && done[a.Shift(-1)]
				}
				if ready && (a.Kind() != schedule.W || forwards[rank] > 0) {
					chosen = i
					break
				}
				if ready && chosen < 0 {
					chosen = i
				}
				held += change[a.Kind()]
				most = max(most, held)
			}
			if chosen < 0 {
				continue
			}
			a := list[chosen]
			if a.Kind() == schedule.F && a.Stage() == rank {
				forwards[rank]--
			}
			now = append(now, a)
			run[rank] = append(run[rank], a)
			rest[rank] = slices.Delete(list, chosen, chosen+1)
		}
		require.NotEmpty(t, now)
		left -= len(now)
		for _, a := range now {
			done[a] = true
		}
	}
	return run
}

func requireFollows(t *testing.T, rule schedule.Rule, pattern func(ranks, rank int) ([4]int, int)) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawV(t)
		if p.Placement.Ranks > 6 {
			p.Microbatches = min(p.Microbatches, 20)
		}
		naive := follow(t, p, pattern)
		requireRule(t, rule, p, func(rank int) []schedule.Action { return naive[rank] })
	})
	// These are enough microbatches for the rule to skip repeats.
	for _, ranks := range []int{1, 2, 3, 4, 5, 6, 7, 8} {
		p := schedule.Params{Placement: schedule.Wave(ranks, 2*ranks), Microbatches: 5*ranks + 20}
		naive := follow(t, p, pattern)
		plan := requireRule(t, rule, p, func(rank int) []schedule.Action { return naive[rank] })
		p.Microbatches = 1_000_000
		long := plantest.Made(t, rule, p)
		for rank, program := range plan.Programs {
			for i, segment := range program {
				require.Len(t, long.Programs[rank][i].Body, len(segment.Body))
			}
			require.Len(t, long.Programs[rank], len(program))
		}
	}
}

func TestVHalfIsItsRule(t *testing.T) { requireFollows(t, schedule.VHalf, halfPattern) }

func TestVMinIsItsRule(t *testing.T) { requireFollows(t, schedule.VMin, minPattern) }

func TestVHalf(t *testing.T) {
	plan := plantest.Made(t, schedule.VHalf, schedule.Params{Placement: schedule.Wave(2, 4), Microbatches: 1_000_000})
	require.Equal(t, "rank 0:\nx 1 +0: 0F0 0F1 0F2 3F0 3I0 3W0 3F1 3I1 0I0 0W0 3W1 3F2\nx 999997 +1: 0F3 3I2 0I1 0W1 3W2 3F3\n"+
		"x 1 +0: 3I999999 0I999998 0W999998 0I999999 3W999999 0W999999\n"+
		"rank 1:\nx 1 +0: 1F0 2F0\nx 999998 +1: 1F1 2F1 2I0 2W0 1I0 1W0\n"+
		"x 1 +0: 1F999999 2F999999 2I999998 1I999998 2I999999 1I999999 2W999998 1W999998 2W999999 1W999999", segmented(t, plan))
}

func TestVMin(t *testing.T) {
	plan := plantest.Made(t, schedule.VMin, schedule.Params{Placement: schedule.Wave(3, 6), Microbatches: 6})
	require.Equal(t, []string{
		"0F0 0F1 0F2 5F0 5I0 5W0 5F1 5I1 5W1 0I0 0W0 0F3 5F2 5I2 0I1 0W1 5W2 0F4 5F3 5I3 0I2 0W2 5W3 0F5 5F4 5I4 0I3 0W3 5W4 5F5 5I5 0I4 0W4 5W5 0I5 0W5",
		"1F0 1F1 4F0 4F1 4I0 4W0 1F2 1I0 1W0 4I1 4W1 4F2 1F3 1I1 1W1 4I2 4W2 4F3 1F4 1I2 1W2 4I3 4W3 4F4 1F5 1I3 4I4 1W3 4W4 4F5 1I4 4I5 1W4 4W5 1I5 1W5",
		"2F0 3F0 2F1 3F1 3I0 2I0 3W0 2W0 2F2 3F2 3I1 2I1 3W1 2W1 2F3 3F3 3I2 2I2 3W2 2W2 2F4 3F4 3I3 2I3 3W3 2W3 2F5 3F5 3I4 2I4 3W4 2W4 3I5 2I5 3W5 2W5",
	}, spelled(plan))
}

// The published figures, in units of a stage: the microbatches in flight on the worst rank, and the bubble if F, I and W
// take equally long. In forwards of a rank, the bubbles at P = 4, 8 and 16 are 2.5, 8.5 and 20.5 for v-half, and 5.5,
// 13.5 and 29.5 for v-min.
func TestVFigures(t *testing.T) {
	halfBubble := func(ranks int) int {
		if ranks%2 == 0 {
			return 3*ranks - 7
		}
		return 3*ranks - 4
	}
	minBubble := func(ranks int) int {
		if ranks%3 == 0 {
			return 4*ranks - 7
		}
		return 4*ranks - 5
	}
	require.Equal(t, [6]int{5, 17, 41, 11, 27, 59}, [6]int{
		halfBubble(4), halfBubble(8), halfBubble(16), minBubble(4), minBubble(8), minBubble(16),
	})
	for ranks := 3; ranks <= 16; ranks++ {
		for _, microbatches := range []int{2 * ranks, 3*ranks + 1} {
			p := schedule.Params{Placement: schedule.Wave(ranks, 2*ranks), Microbatches: microbatches}
			half := plantest.Made(t, schedule.VHalf, p)
			makespan, _ := plantest.Clocks(t, half, plantest.Ticks)
			require.Equal(t, 6*microbatches+halfBubble(ranks), makespan, "P=%d", ranks)
			require.Equal(t, (ranks+2)/2*2, slices.Max(inFlight(half)))

			least := plantest.Made(t, schedule.VMin, p)
			makespan, _ = plantest.Clocks(t, least, plantest.Ticks)
			require.Equal(t, 6*microbatches+minBubble(ranks), makespan, "P=%d", ranks)
			require.Equal(t, (ranks+4)/3*2, slices.Max(inFlight(least)))
		}
	}
}

// The makespan of one microbatch is that of its own actions: both stages of every rank, forward and back, and a W.
func TestVOfOneMicrobatch(t *testing.T) {
	for _, rule := range []schedule.Rule{schedule.VHalf, schedule.VMin} {
		for ranks := 1; ranks <= 16; ranks++ {
			plan := plantest.Made(t, rule, schedule.Params{Placement: schedule.Wave(ranks, 2*ranks), Microbatches: 1})
			makespan, _ := plantest.Clocks(t, plan, plantest.Ticks)
			require.Equal(t, max(6, 4*ranks+1), makespan)
		}
	}
}
