package schedule_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/testing/plantest"
	"github.com/weir-ml/weir/schedule"
)

func TestSchedulesAreThese(t *testing.T) {
	var names []string
	for _, s := range schedule.Schedules() {
		names = append(names, s.Name)
		found, err := schedule.Find(s.Name)
		require.NoError(t, err)
		require.Equal(t, s.Name, found.Name)
		require.NotEmpty(t, s.Summary)
		require.NotContains(t, s.Summary, "\n")
	}
	require.Equal(t, "gpipe 1f1b interleaved breadth-first depth-first zb-h1 zb-h2 zb1p zb-v v-half v-min grouped-interleave dualpipe dualpipev seq1f1b",
		strings.Join(names, " "))
}

// Find returns a schedule by its name, and Place the placement for which its rule is made.
func ExampleFind() {
	s, _ := schedule.Find("1f1b")
	placement, _ := s.Place(2, 2)
	plan, _ := s.Rule(schedule.Params{Placement: placement, Microbatches: 3})
	for rank := range placement.Ranks {
		fmt.Println(slices.Collect(plan.All(rank)))
	}
	_, err := s.Place(2, 1)
	fmt.Println(err)
	// Output:
	// [0F0 0F1 0B0 0F2 0B1 0B2]
	// [1F0 1B0 1F1 1B1 1F2 1B2]
	// schedule: invalid parameters: 1f1b does not run 1 stages on 2 ranks: use 2 stages, one a rank, or more
}

// TestFindKnowsTheNamesOfTheField finds schedules by the names that PyTorch 2.15 accepts (get_schedule_class), by the
// names of its classes, and by other spellings.
func TestFindKnowsTheNamesOfTheField(t *testing.T) {
	for name, want := range map[string]string{
		"1F1B": "1f1b", "GPipe": "gpipe", "Interleaved1F1B": "interleaved", "LoopedBFS": "breadth-first", "InterleavedZeroBubble": "zb1p", "ZBVZeroBubble": "zb-v", "DualPipeV": "dualpipev",
		"ScheduleInterleaved1F1B": "interleaved", "interleaved1f1b": "interleaved", "zbv": "zb-v", "ZB-H1": "zb-h1", "ZB1P": "zb1p", "Depth_First": "depth-first",
	} {
		found, err := schedule.Find(name)
		require.NoError(t, err)
		require.Equal(t, want, found.Name)
	}
	placement := schedule.Looped(2, 4)
	found, err := schedule.Find("LoopedBFS")
	require.NoError(t, err)
	plan := plantest.Made(t, found.Rule, schedule.Params{Placement: placement, Microbatches: 4})
	// _dump_csv of PyTorch 2.9.1 writes this for ScheduleLoopedBFS on two ranks.
	require.Equal(t, "[0F0 0F1 0F2 0F3 2F0 2F1 2F2 2F3 2B3 2B2 2B1 2B0 0B3 0B2 0B1 0B0]", fmt.Sprint(slices.Collect(plan.All(0))))
	require.False(t, found.AscendingBackward)
	for _, none := range []string{"", "schedule"} {
		_, err := schedule.Find(none)
		require.Error(t, err)
	}
}

func TestFindSuggestsTheNearest(t *testing.T) {
	for name, nearest := range map[string]string{
		"interleave": "interleaved", "breadth": "breadth-first", "gpip": "gpipe", "zb-h3": "zb-h1",
	} {
		_, err := schedule.Find(name)
		require.ErrorIs(t, err, schedule.ErrParams)
		require.ErrorContains(t, err, "did you mean "+nearest+"? There are gpipe, 1f1b, ")
	}
	for _, far := range []string{"-", "plans/adir", "x"} {
		_, err := schedule.Find(far)
		require.ErrorContains(t, err, fmt.Sprintf("there is no schedule %q; there are gpipe, 1f1b, ", far))
	}
	_, err := schedule.Find(strings.Repeat("x", 1<<20))
	require.ErrorIs(t, err, schedule.ErrParams)
	require.Less(t, len(err.Error()), 400)
	_, err = schedule.Find("")
	require.ErrorIs(t, err, schedule.ErrParams)
}

// Place accepts exactly the numbers of stages that the rule supports.
func TestPlacements(t *testing.T) {
	works := map[string]func(ranks, stages int) bool{
		"a stage or more on every rank": func(ranks, stages int) bool { return stages >= ranks },
		"any number":                    func(ranks, stages int) bool { return true },
		"the same number on each rank":  func(ranks, stages int) bool { return stages%ranks == 0 },
		"two on each rank":              func(ranks, stages int) bool { return stages == 2*ranks },
		"one on each rank":              func(ranks, stages int) bool { return stages == ranks },
	}
	wants := map[string]string{
		"gpipe": "any number", "breadth-first": "any number", "depth-first": "any number",
		"1f1b": "a stage or more on every rank", "zb-h1": "a stage or more on every rank", "zb-h2": "a stage or more on every rank", "seq1f1b": "a stage or more on every rank",
		"interleaved": "the same number on each rank", "zb1p": "the same number on each rank", "grouped-interleave": "the same number on each rank",
		"zb-v": "two on each rank", "v-half": "two on each rank", "v-min": "two on each rank", "dualpipev": "two on each rank",
		"dualpipe": "one on each rank",
	}
	for _, s := range schedule.Schedules() {
		require.Contains(t, works, wants[s.Name], "say of %s which placements it takes", s.Name)
		for _, wrong := range [][2]int{{0, 4}, {4, 0}, {-1, 1}, {1, schedule.MaxStages + 1}, {math.MaxInt, 4}} {
			_, err := s.Place(wrong[0], wrong[1])
			require.ErrorIs(t, err, schedule.ErrParams, s.Name)
		}
		for ranks := 1; ranks <= 6; ranks++ {
			_, err := s.Place(ranks, ranks*s.PerRank)
			require.NoError(t, err, s.Name)
			for stages := 1; stages <= 3*ranks+1; stages++ {
				placement, err := s.Place(ranks, stages)
				if !works[wants[s.Name]](ranks, stages) {
					require.ErrorIs(t, err, schedule.ErrParams, s.Name)
					require.ErrorContains(t, err, "use ")
					continue
				}
				require.NoError(t, err, s.Name)
				require.Equal(t, stages, placement.Depth())
				require.Equal(t, ranks, placement.Ranks)
				plan := plantest.Made(t, s.Rule, schedule.Params{Placement: placement, Microbatches: 3})
				require.Equal(t, placement, plan.Placement)
			}
		}
	}
}

// TestEverySchedule runs every schedule on some ranks, stages and microbatches, and
// checks its description in the catalog.
func TestEverySchedule(t *testing.T) {
	const seed = 1
	rng := rand.New(rand.NewPCG(seed, 0))
	for _, s := range schedule.Schedules() {
		splits, ascends := false, true
		for _, ranks := range []int{1, 2, 3, 4, 8} {
			for _, depth := range []int{s.PerRank, 1, 3} {
				placement, err := s.Place(ranks, ranks*depth)
				if err != nil {
					continue
				}
				for _, microbatches := range []int{1, 2, max(ranks-1, 1), ranks, 2*ranks + 1, 25} {
					p := schedule.Params{Placement: placement, Microbatches: microbatches}
					if s.Name == "seq1f1b" {
						p.Slices = 3
					}
					training := plantest.Made(t, s.Rule, p)
					plantest.RequireWhole(t, training)
					plantest.Clocks(t, training, plantest.Ticks)
					splits = splits || hasSplit(training)
					ascends = ascends && hasAscent(training)

					p.Mode = schedule.ForwardOnly
					forward := plantest.Made(t, s.Rule, p)
					for rank, list := range plantest.Lists(training) {
						require.Equal(t, left(p, list), plantest.Lists(forward)[rank], s.Name)
					}

					p.Mode = schedule.Training
					p.Frozen = make([]bool, placement.Stages())
					free := rng.IntN(placement.Depth())
					for stage := range placement.Depth() {
						frozen := stage != free && rng.IntN(2) == 0
						for row := stage; row < len(p.Frozen); row += placement.Depth() {
							p.Frozen[row] = frozen
						}
					}
					frozen := plantest.Made(t, s.Rule, p)
					plantest.RequireWhole(t, frozen)
					plantest.Clocks(t, frozen, plantest.Ticks)
				}
			}
		}
		require.Equal(t, s.Split, splits, s.Name)
		require.Equal(t, s.AscendingBackward, ascends, s.Name)
	}
}

// hasSplit reports whether a plan runs a weight gradient as a separate action.
func hasSplit(p *schedule.Plan) bool {
	return slices.ContainsFunc(slices.Concat(plantest.Lists(p)...), func(a schedule.Action) bool { return a.Kind() == schedule.W })
}

// hasAscent reports whether the gradients of every stage of the model are added in
// ascending order of microbatches. Copies of the model add theirs separately.
func hasAscent(p *schedule.Plan) bool {
	if p.Placement.Copies > 1 {
		return false
	}
	next := map[plantest.Cell]int{} // by stage and kind
	for _, list := range plantest.Lists(p) {
		for _, a := range list {
			at := plantest.Cell{Stage: a.Stage(), Mb: int(a.Kind())}
			if a.Kind() == schedule.W {
				at.Mb = int(schedule.B) // W and B add to the same gradient
			}
			if a.Kind() != schedule.F && a.Kind() != schedule.I && a.Microbatch() < next[at] {
				return false
			}
			next[at] = a.Microbatch()
		}
	}
	return true
}
