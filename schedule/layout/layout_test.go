package layout_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/testing/plantest"
	"github.com/weir-ml/weir/internal/testing/testkit"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/memory/placement"
	"github.com/weir-ml/weir/memory/planning"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/layout"
	"github.com/weir-ml/weir/schedule/lower"
)

// quick is enough work for tests that do not depend on the height.
var quick = placement.Options{Nodes: 1000}

func laid(t testing.TB, plan *schedule.Plan, profile *layout.Profile, cfg layout.Config) *layout.Memory {
	t.Helper()
	made, err := layout.Make(context.Background(), plan, profile, cfg)
	require.NoError(t, err, plan.Name)
	return made
}

// TestEverySchedule lays out every schedule and compares the layout with the whole program:
// the offset and the size at every birth, the sum of the marks of live buffers, the levels
// of each place, and no byte used twice.
func TestEverySchedule(t *testing.T) {
	for _, s := range schedule.Schedules() {
		for _, size := range [][2]int{{1, 5}, {2, 2}, {2, 9}, {3, 24}} {
			ranks, m := size[0], size[1]
			name := fmt.Sprintf("%s P=%d M=%d", s.Name, ranks, m)
			plan, err := tryPlanned(s.Name, ranks, m, schedule.Training)
			if err != nil {
				require.ErrorIs(t, err, schedule.ErrParams, name) // the schedule does not run with so few microbatches
				continue
			}
			made := laid(t, plan, model(plan.Placement.Depth(), 1, 16, 5), layout.Config{LookAhead: m % 3, Search: quick})
			for rank := range made.Ranks {
				requireLayout(t, made, rank, name)
			}
		}
	}
}

// requireLayout replays the whole program of a rank on its layout.
func requireLayout(t testing.TB, made *layout.Memory, rank int, name string) {
	t.Helper()
	r := &made.Ranks[rank]
	l := r.Layout
	require.Len(t, l.Places, len(l.Levels)+1, name)
	var problem placement.Problem
	var offsets []int64
	var live int64
	var marks int64 // of live buffers and their offsets; a place finds the same marks each time
	seen := map[int]int64{}
	at, taken := -1, 0
	level := memory.Level{}
	levels := func() {
		if at >= 0 {
			level.Live = live
			require.Equal(t, l.Levels[at], level, "%s rank %d place %d", name, rank, at)
		}
	}
	time := int64(0)
	for c := range made.All(rank) {
		if c.Place != at {
			levels()
			at, taken, level = c.Place, 0, memory.Level{Peak: live}
		}
		if !c.Alloc {
			live -= c.Bytes
			marks -= (offsets[c.Serial] + 1) * c.Bytes
			problem.Buffers[c.Serial].Upper = time
		} else {
			births := l.Allocations[l.Places[at]:l.Places[at+1]]
			if taken >= len(births) { // the same place again
				taken = 0
			}
			b, number := births[taken], int(l.Places[at])+taken
			taken++
			require.Equal(t, memory.Allocation{Offset: c.Offset, Bytes: c.Bytes, Class: c.Class, AtMost: b.AtMost}, b, "%s rank %d place %d birth %d", name, rank, at, taken-1)
			if _, again := seen[number]; !again {
				seen[number] = marks
			}
			require.Equal(t, seen[number], marks, "%s rank %d place %d birth %d", name, rank, at, taken-1)
			live += c.Bytes
			marks += (c.Offset + 1) * c.Bytes
			level.Peak = max(level.Peak, live)
			require.Equal(t, len(offsets), c.Serial)
			offsets = append(offsets, c.Offset)
			problem.Buffers = append(problem.Buffers, placement.Buffer{Lower: time, Size: c.Bytes, Align: 4})
		}
		time++
	}
	require.Zero(t, live, name)
	if len(offsets) == 0 {
		return
	}
	height, err := placement.Check(&problem, offsets)
	require.NoError(t, err, "%s rank %d", name, rank)
	require.Equal(t, r.Height, height, "%s rank %d", name, rank)
	require.Equal(t, r.Bound, problem.Bound(), "%s rank %d: the bound is that of the whole program", name, rank)
	require.Equal(t, r.Height == r.Bound, r.Gap() == 0)
}

// TestActionInATail finds the actions of a segment of ten repeats: one in the lead, cycles of two,
// and two in the tail.
func TestActionInATail(t *testing.T) {
	f, b := schedule.NewAction(schedule.F, 0, 4), schedule.NewAction(schedule.B, 0, 0)
	program := []schedule.Segment{{Body: []schedule.Action{f, b}, Repeat: 10, Stride: 1}}
	r := &layout.RankLayout{Layout: &memory.Layout{
		Segments: []memory.SegmentPlaces{{Body: 2, Repeat: 10, Lead: 1, Cycle: 2, Tail: 2}}, Levels: make([]memory.Level, 11),
	}}
	for place, repeat := range []int{0, 1, 2, 8, 9} {
		require.Equal(t, 2*place, r.Layout.Segments[0].Base(repeat))
		for i, action := range program[0].Body {
			got, found := r.Action(program, 2*place+i)
			require.True(t, found)
			require.Equal(t, action.Shift(repeat), got)
		}
	}
	_, found := r.Action(program, r.Layout.StepEnd())
	require.False(t, found)
}

// TestPlacesOfRepeats computes places as a runner does: by segment, repeat and action.
func TestPlacesOfRepeats(t *testing.T) {
	for _, s := range schedule.Schedules() {
		plan := planned(t, s.Name, 2, 24, schedule.Training)
		made := laid(t, plan, model(plan.Placement.Depth(), 1, 16, 4), layout.Config{Search: quick})
		for rank := range made.Ranks {
			r := &made.Ranks[rank]
			end := r.Layout.StepEnd()
			require.Len(t, r.Layout.Segments, len(plan.Programs[rank]))
			seen := map[int]bool{}
			for i, segment := range plan.Programs[rank] {
				for repeat := range segment.Repeat {
					base := r.Layout.Segments[i].Base(repeat)
					require.GreaterOrEqual(t, base, 0)
					for k, action := range segment.Body {
						require.Less(t, base+k, end)
						got, found := r.Action(plan.Programs[rank], base+k)
						require.True(t, found)
						if !seen[base+k] { // the first repeat that has the place
							require.Equal(t, action.Shift(repeat*segment.Stride), got)
						}
						seen[base+k] = true
					}
				}
			}
			require.Len(t, seen, end, "%s rank %d: every place is reached", s.Name, rank)
			_, found := r.Action(plan.Programs[rank], end)
			require.False(t, found)
		}
	}
}

// TestForwardOnly lays out evaluations.
func TestForwardOnly(t *testing.T) {
	for _, s := range schedule.Schedules() {
		plan := planned(t, s.Name, 2, 12, schedule.ForwardOnly)
		made := laid(t, plan, model(plan.Placement.Depth(), 1, 16, 4), layout.Config{Search: quick})
		for rank := range made.Ranks {
			requireLayout(t, made, rank, s.Name)
		}
	}
}

// TestReservedIsPeak: the layouts of these schedules are as low as possible.
func TestReservedIsPeak(t *testing.T) {
	for _, name := range []string{"gpipe", "1f1b", "depth-first", "breadth-first", "v-half"} {
		plan := planned(t, name, 2, 8, schedule.Training)
		made := laid(t, plan, model(plan.Placement.Depth(), 1, 48, 32), layout.Config{})
		for rank, r := range made.Ranks {
			require.Equal(t, r.Bound, r.Height, "%s rank %d: %s", name, rank, r.Method)
			require.True(t, r.Optimal)
		}
	}
}

// TestOffsetsComeBack compares layouts that have cycles of several lengths with the whole program.
func TestOffsetsComeBack(t *testing.T) {
	cycles := map[int]bool{}
	for _, name := range []string{"1f1b", "zb-h1"} {
		plan := planned(t, name, 3, 400, schedule.Training)
		made := laid(t, plan, model(3, 1, 48, 32), layout.Config{LookAhead: 2, Search: placement.Options{Nodes: 100_000}})
		for rank := range made.Ranks {
			requireLayout(t, made, rank, name)
			require.Less(t, made.Ranks[rank].Gap(), 0.01, name)
			for _, s := range made.Ranks[rank].Layout.Segments {
				cycles[s.Cycle] = true
			}
		}
	}
	require.Greater(t, len(cycles), 2, "cycles of several lengths: %v", cycles)
}

// TestCopiesThatTakeTurns skips repeats in which the source gives an entry for each copy,
// and uses look-ahead.
func TestCopiesThatTakeTurns(t *testing.T) {
	if testkit.Raced {
		t.Skip("it has the goroutines of TestEverySchedule")
	}
	for _, m := range []int{700, 701} {
		for _, ahead := range []int{0, 31} {
			plan := planned(t, "dualpipe", 2, m, schedule.Training)
			made := laid(t, plan, model(plan.Placement.Depth(), 1, 16, 4), layout.Config{LookAhead: ahead, Search: quick})
			for rank := range made.Ranks {
				requireLayout(t, made, rank, "dualpipe")
				entries := 0
				for c := range made.All(rank) {
					if c.Alloc && c.Class == memory.Entry {
						entries++
					}
				}
				first, second := (m+1)/2, m/2 // one part for the bottom of the model, two for its top
				require.Equal(t, []int{first + 2*second, 2*first + second}[rank], entries)
			}
		}
	}
}

// TestLoopsOfLoops lays out a plan with nested loops in some segments.
func TestLoopsOfLoops(t *testing.T) {
	plan := planned(t, "1f1b", 4, 500, schedule.Training)
	want := laid(t, plan, model(4, 1, 16, 7), layout.Config{Search: quick})
	got := laid(t, plantest.Nested(plan, rand.New(rand.NewPCG(1, 2))), model(4, 1, 16, 7), layout.Config{Search: quick})
	for rank := range want.Ranks {
		require.Equal(t, want.Ranks[rank].Bound, got.Ranks[rank].Bound)
	}
}

// TestBodyTooLong: a short text can describe a loop whose body has millions of actions.
func TestBodyTooLong(t *testing.T) {
	const m = schedule.MaxWritten + 1
	body := []schedule.Action{schedule.NewAction(schedule.F, 0, 0), schedule.NewAction(schedule.B, 0, 0)}
	plan := &schedule.Plan{Placement: schedule.Looped(1, 1), Microbatches: 4 * m, Programs: [][]schedule.Segment{
		{{Inner: []schedule.Segment{{Body: body, Repeat: m, Stride: 1}}, Repeat: 4, Stride: m}},
	}}
	plan, err := lower.Lifetimes(plan, make([]schedule.StageInfo, 1), 0)
	require.NoError(t, err)
	_, err = layout.Make(t.Context(), plan, model(1, 1, 16, 7), layout.Config{Search: quick})
	require.ErrorIs(t, err, layout.ErrTooLong)
	require.ErrorContains(t, err, "rank 0 has 4194306 actions in the bodies of its loops")
}

// TestSameLayoutAgain lays out the same plan twice.
func TestSameLayoutAgain(t *testing.T) {
	plan := planned(t, "zb-h2", 4, 50, schedule.Training)
	profile := model(4, 1, 16, 7)
	first := laid(t, plan, profile, layout.Config{Search: quick})
	again := laid(t, plan, profile, layout.Config{Search: quick})
	for rank := range first.Ranks {
		require.Equal(t, first.Ranks[rank].Layout, again.Ranks[rank].Layout)
		require.Equal(t, first.Ranks[rank].Certificate, again.Ranks[rank].Certificate)
	}
}

// TestWorkIsIndependentOfMicrobatches compares a thousand microbatches with a million: the
// peaks are equal, and the numbers of births in the layouts are close.
func TestWorkIsIndependentOfMicrobatches(t *testing.T) {
	for _, name := range []string{"1f1b", "zb-h1", "seq1f1b", "dualpipe"} {
		var before []layout.RankLayout
		for _, m := range []int{1000, 1_000_000} {
			plan := planned(t, name, 2, m, schedule.Training)
			made := laid(t, plan, model(plan.Placement.Depth(), 1, 16, 4), layout.Config{Search: quick})
			for rank, r := range made.Ranks {
				require.Less(t, len(r.Layout.Allocations), 20_000, name)
				if before != nil {
					require.Equal(t, before[rank].Bound, r.Bound, name)
					require.InDelta(t, len(before[rank].Layout.Allocations), len(r.Layout.Allocations), 3000, name)
				}
			}
			before = made.Ranks
		}
	}
}

// TestRankWithoutStages has an idle rank and as many microbatches as are allowed. To visit
// them all would take seconds.
func TestRankWithoutStages(t *testing.T) {
	plan, err := schedule.DepthFirst(schedule.Params{Microbatches: schedule.MaxMicrobatches, Placement: schedule.Placement{Ranks: 6, Rank: []int{0, 5}}})
	require.NoError(t, err)
	plan, err = lower.Prepare(plan, lower.Passes{StageInfo: facts(plan.Placement, true), Parts: 3, Capacity: 1})
	require.NoError(t, err)
	made := laid(t, plan, model(2, 1, 16, 4), layout.Config{Search: quick})
	for rank := range made.Ranks {
		require.Equal(t, rank == 0 || rank == 5, made.Ranks[rank].Height > 0)
	}
}

// TestTooMuchAtOnce expects an error if held buffers grow with microbatches.
func TestTooMuchAtOnce(t *testing.T) {
	testkit.Slow(t)
	plan := planned(t, "gpipe", 2, 100_000, schedule.Training)
	_, err := layout.Make(context.Background(), plan, model(2, 1, 16, 4), layout.Config{Search: quick})
	require.ErrorIs(t, err, layout.ErrTooLong)
	require.ErrorContains(t, err, "1f1b")
}

// TestFarTooMuchAtOnce expects the error before a million allocations are traced.
func TestFarTooMuchAtOnce(t *testing.T) {
	plan := planned(t, "gpipe", 4, schedule.MaxMicrobatches, schedule.Training)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := layout.Make(t.Context(), plan, model(4, 1, 16, 4), layout.Config{Search: quick})
	runtime.ReadMemStats(&after)
	require.ErrorIs(t, err, layout.ErrTooLong)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(8<<20))
}

// TestShapesBeforehand gives the class of every microbatch.
func TestShapesBeforehand(t *testing.T) {
	plan := planned(t, "1f1b", 2, 30, schedule.Training)
	profile := model(2, 1, 16, 3, 8, 5)
	shapes := make([]int, 30)
	for m := range shapes {
		shapes[m] = m * m % 7 % 3
	}
	made := laid(t, plan, profile, layout.Config{Shapes: shapes})
	for rank := range made.Ranks {
		requireLayout(t, made, rank, "shapes")
		require.Less(t, made.Ranks[rank].Gap(), 0.05)
		require.Equal(t, "exact", made.Ranks[rank].Sizes)
	}
	sizes := map[int64]bool{}
	for c := range made.All(0) {
		sizes[c.Bytes] = true
	}
	require.Contains(t, sizes, int64(4*3))
	require.Contains(t, sizes, int64(4*8))
}

// TestEnvelope plans for any class: every buffer has its largest size.
func TestEnvelope(t *testing.T) {
	plan := planned(t, "1f1b", 2, 30, schedule.Training)
	made := laid(t, plan, model(2, 1, 16, 3, 8, 5), layout.Config{Envelope: true, Search: quick})
	largest := laid(t, plan, model(2, 1, 16, 8), layout.Config{Search: quick})
	for rank := range made.Ranks {
		r := &made.Ranks[rank]
		requireLayout(t, made, rank, "envelope")
		require.Equal(t, "envelope of 3 shape classes", r.Sizes)
		require.Equal(t, largest.Ranks[rank].Bound, r.Bound)
		require.True(t, r.Layout.Allocations[0].AtMost)
	}
}

// TestEnvelopeNeedsOneStructure refuses classes that differ in what they allocate.
func TestEnvelopeNeedsOneStructure(t *testing.T) {
	plan := planned(t, "1f1b", 2, 4, schedule.Training)
	profile := model(2, 1, 16, 3)
	profile.Shapes = append(profile.Shapes, model(2, 2, 16, 3).Shapes...)
	_, err := layout.Make(context.Background(), plan, profile, layout.Config{Envelope: true})
	require.ErrorIs(t, err, layout.ErrProfile)
	require.ErrorContains(t, err, "more than sizes")
}

// TestConfig expects every fault of a configuration.
func TestConfig(t *testing.T) {
	plan := planned(t, "1f1b", 2, 4, schedule.Training)
	_, err := layout.Make(context.Background(), plan, model(3, 1, 16, 3), layout.Config{LookAhead: -1, Budget: -1, Shapes: []int{9}, Envelope: true})
	for _, text := range []string{"the profile has 3 stages, and the plan 2", "LookAhead is -1", "Budget is -1", "give one of the two", "Shapes has 1 entries, expected one for each of 4", "class 9 of 1"} {
		require.ErrorContains(t, err, text)
	}
	bare := *plan
	bare.Parts = nil
	_, err = layout.Make(context.Background(), &bare, model(2, 1, 16, 3), layout.Config{})
	require.ErrorContains(t, err, "lower.Lifetimes")
}

// TestNamesOfEntryParts: each part of an entry has its name, regardless of the parts that other ranks want.
func TestNamesOfEntryParts(t *testing.T) {
	made := laid(t, planned(t, "1f1b", 2, 1, schedule.Training), model(2, 1, 16, 3), layout.Config{Search: quick})
	var names []string
	for c := range made.All(1) {
		if c.Alloc && c.Class == memory.Entry {
			names = append(names, made.Name(c))
		}
	}
	require.Equal(t, []string{`entry part "labels"`, `entry part "weights"`}, names)
}

// TestPaddingIsNoGap lays out buffers that are not whole cache lines. If padding would make the layout too high, the
// buffers are adjacent.
func TestPaddingIsNoGap(t *testing.T) {
	plan := planned(t, "1f1b", 2, 64, schedule.Training)
	made := laid(t, plan, model(2, 1, 50, 33), layout.Config{Search: placement.Options{Nodes: 20_000}})
	for rank, r := range made.Ranks {
		requireLayout(t, made, rank, "odd sizes")
		require.LessOrEqual(t, r.Gap(), 1.0/1024, "rank %d: %s", rank, r.Method)
	}
}

// TestProofWithPadding: sizes that are not multiples of the least alignment need padding in
// every layout, and the proof says so.
func TestProofWithPadding(t *testing.T) {
	plan := planned(t, "1f1b", 1, 3, schedule.Training)
	profile := model(1, 1, 16, 4)
	for i := range profile.Shapes[0].Stages[0].Buffers {
		profile.Shapes[0].Stages[0].Buffers[i].Bytes += int64(1 + i%3)
	}
	made := laid(t, plan, profile, layout.Config{Search: placement.Options{Nodes: 100_000}})
	r := &made.Ranks[0]
	require.Greater(t, r.Height, r.Bound)
	require.True(t, r.Optimal, "%d above %d by %s", r.Height, r.Bound, r.Method)
	require.Contains(t, r.Proof, "multiple of 4 bytes")
}

// TestGaps bounds the excess of every schedule's layout after a short search, on the worst of four ranks. Schedules
// that are not listed meet the bound.
func TestGaps(t *testing.T) {
	testkit.Slow(t)
	most := map[string]float64{
		"gpipe": 0.0015, "interleaved": 0.017, "breadth-first": 0.006, "zb-h1": 0.006, "zb-h2": 0.004,
		"zb1p": 0.012, "v-min": 0.002, "dualpipe": 0.001, "dualpipev": 0.001,
	}
	for _, s := range schedule.Schedules() {
		few := s.Name == "1f1b" || s.Name == "zb-v"
		if testkit.Raced && !few {
			continue
		}
		for _, m := range []int{8, 64, 128} {
			if m > 64 && !few && !*testkit.Long {
				continue
			}
			name := fmt.Sprintf("%s M=%d", s.Name, m)
			plan := planned(t, s.Name, 4, m, schedule.Training)
			made := laid(t, plan, model(plan.Placement.Depth(), 1, 48, 32), layout.Config{Search: placement.Options{Nodes: 15_000}})
			for rank := range made.Ranks {
				requireLayout(t, made, rank, name)
				r := &made.Ranks[rank]
				require.LessOrEqual(t, r.Gap(), most[s.Name], "%s rank %d: %s", name, rank, r.Method)
				require.Equal(t, r.Height == r.Bound, r.Optimal, "%s rank %d: %s", name, rank, r.Proof)
			}
		}
	}
}

// TestTheSearchOfAStepHasALimit checks that a search has a work limit by default, unless a time limit
// is set or the shapes differ.
func TestTheSearchOfAStepHasALimit(t *testing.T) {
	for given, want := range map[planning.Search]placement.Options{
		{}: {Nodes: 200_000}, {Nodes: 3}: {Nodes: 3}, {Time: time.Second}: {Time: time.Second},
	} {
		require.Equal(t, want, layout.SearchOptions(&planning.Step{Search: given}))
	}
	require.Zero(t, layout.SearchOptions(&planning.Step{Shapes: []int{0, 1}}))
}
