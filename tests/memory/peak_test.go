package memory_test

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/fp8"
	"github.com/weir-ml/weir/internal/testing/testkit"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/memory/planning"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/layout"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/stages/transformer"
)

// grows lists the schedules whose memory grows with the number of microbatches by definition.
var grows = []string{"gpipe", "breadth-first"}

// inShort lists the schedules that run thousands of microbatches even without -long.
var inShort = []string{"1f1b", "depth-first", "interleaved", "zb-v"}

// TestPeakIsPlanned requires for several numbers of microbatches that the peak of every rank is the
// planned one to the byte, that the arena has reserved exactly the height of the layout, and that
// losses, gradients and weights have the same bits as without a layout (L9).
func TestPeakIsPlanned(t *testing.T) {
	testkit.Slow(t)
	for _, found := range schedule.Schedules() {
		counts := []int{8, 128, 4096}
		switch {
		case testkit.Raced:
			counts = []int{8, 64}
		case !*testkit.Long && !slices.Contains(inShort, found.Name):
			counts = counts[:2]
		}
		if slices.Contains(grows, found.Name) {
			counts = []int{8, 24}
		}
		s := setup{schedule: found.Name, ranks: 2, stages: 2 * found.PerRank, model: tiny, capacity: 1}
		t.Run(found.Name, func(t *testing.T) {
			var flat []int64
			for _, m := range counts {
				flat = append(flat, checkPeak(t, s, m)...)
			}
			if !slices.Contains(grows, found.Name) {
				for i := range flat {
					require.Equal(t, flat[i%s.ranks], flat[i], "peaks of rank %d: %v", i%s.ranks, flat)
				}
			}
		})
	}
}

// TestKeptLogitsArePlanned requires that the plan contains the logits that the head keeps, to the
// byte, with a whole backward and with a split one, which keeps them longer.
func TestKeptLogitsArePlanned(t *testing.T) {
	s := setup{ranks: 2, stages: 2, capacity: 1, model: tiny}
	s.model.Vocabulary = 2100
	for _, s.schedule = range []string{"1f1b", "zb-h1"} {
		var peaks []int64                                        // of the rank with the head
		for _, keep := range []int64{0, 4 * 8 * 1040, 1 << 20} { // a tile of the host, all
			s.model.KeepLogits = keep
			peaks = append(peaks, checkPeak(t, s, 8)[1])
		}
		if s.schedule == "zb-h1" {
			require.IsIncreasing(t, peaks)
		}
	}
}

// TestLogitsAreChosen covers the choice of Model.Record: it keeps all logits if there is space for
// the logits of every microbatch in flight, and otherwise none. It does not change a configured value.
// The step equals its plan, and the loss does not change.
func TestLogitsAreChosen(t *testing.T) {
	const m = 16
	s := setup{schedule: "1f1b", ranks: 2, stages: 2, capacity: 1, model: tiny}
	s.model.Vocabulary = 300
	free := newRig(t, s, false)
	lengths := func(microbatch int) int { return 1 + microbatch%s.model.Context }
	want, err := free.group(t, nil).Step(t.Context(), m, free.sources(lengths))
	require.NoError(t, err)
	run := func(schedule string, given, budget int64) (keep, reserve int64) {
		s := s
		s.schedule, s.model.KeepLogits = schedule, given
		dry := newRig(t, s, true)
		dry.cfg.Memory.Budget, dry.cfg.Memory.Search.Nodes = budget, 1 // the configuration of group
		profile, err := dry.model.Record(t.Context(), dry.cfg, m, dry.shape(s.model.Context), dry.shape(1))
		require.NoError(t, err)
		laid := newRig(t, s, false)
		laid.model.KeepLogits, laid.cfg.Memory.Budget = dry.model.KeepLogits, budget
		got, err := laid.group(t, profile).Step(t.Context(), m, laid.sources(lengths))
		require.NoError(t, err)
		require.Equal(t, want.Losses, got.Losses)
		require.Equal(t, math.Float64bits(want.GradNorm), math.Float64bits(got.GradNorm))
		return dry.model.KeepLogits, got.Ranks[1].Height // where the head is
	}
	choice := func(schedule string, given, budget int64) int64 { keep, _ := run(schedule, given, budget); return keep }
	require.EqualValues(t, transformer.AllLogits, choice("1f1b", 0, 0), "one microbatch in flight")
	require.EqualValues(t, transformer.AllLogits, choice("zb-h1", 0, 0), "18 % more memory, including the model")
	keep, reserve := run("gpipe", 0, 1<<20)
	require.EqualValues(t, transformer.AllLogits, keep)
	require.EqualValues(t, transformer.AllLogits, choice("gpipe", 0, reserve))
	require.EqualValues(t, transformer.NoLogits, choice("gpipe", 0, reserve-1))
	for _, given := range []int64{transformer.NoLogits, 4 * 300, 4 * 8 * 300, transformer.AllLogits} {
		require.Equal(t, given, choice("1f1b", given, 1<<20))
	}

	s.schedule, s.model.Vocabulary = "gpipe", 40
	dry := newRig(t, s, true)
	_, err = dry.model.Record(t.Context(), dry.cfg, m, dry.shape(s.model.Context))
	require.NoError(t, err)
	require.EqualValues(t, transformer.NoLogits, dry.model.KeepLogits, "all in flight, 27 % more memory")
	dry.model.KeepLogits = 0
	_, err = dry.model.Record(t.Context(), dry.cfg, 1<<16, dry.shape(1))
	require.NoError(t, err)
	require.EqualValues(t, transformer.NoLogits, dry.model.KeepLogits, "a step that is too long to be planned")
}

// checkPeak runs steps with a layout and, if they are short, without one, compares them with the
// plan and with each other, and returns the peaks of the ranks.
func checkPeak(t *testing.T, s setup, m int) (peaks []int64) {
	t.Helper()
	free := newRig(t, s, false)
	laid := newRig(t, s, false)
	profile := profileOf(t, s, 5)
	unplanned := free.group(t, nil)
	group := laid.group(t, profile)
	plan := prepare(t, group, m, nil)
	var model []memory.Stats
	for _, dev := range laid.devs {
		var stats memory.Stats
		dev.Stats(&stats)
		model = append(model, stats)
	}
	for range 1 + min(1, 200/m) { // the second step begins with the pages of the first
		var byClass []memory.ByClass // without a layout
		got := runStep(t, group, m, laid.sources(fixed(5)))
		require.True(t, got.Planned)
		if m < 200 {
			want, err := unplanned.Step(t.Context(), m, free.sources(fixed(5)))
			require.NoError(t, err)
			require.False(t, want.Planned)
			require.Equal(t, math.Float64bits(want.Losses[0].Sum), math.Float64bits(got.Losses[0].Sum))
			require.Equal(t, math.Float64bits(want.GradNorm), math.Float64bits(got.GradNorm))
			for rank := range want.Ranks {
				byClass = append(byClass, want.Ranks[rank].PeakClasses)
			}
		}
		peaks = peaks[:0]
		for rank := range got.Ranks {
			ran, planned := &got.Ranks[rank], &plan.Ranks[rank]
			checkClasses(t, ran, planned, &model[rank])
			if byClass != nil {
				require.Equal(t, byClass[rank], ran.PeakClasses)
			}
			require.Equal(t, planned.Bound, ran.Peak-model[rank].Live, "%v M=%d rank %d", s, m, rank)
			require.Equal(t, ran.PeakPlanned, ran.Peak)
			require.Equal(t, planned.Height, ran.Height)
			require.Equal(t, planned.Height, ran.Reserved-model[rank].Reserved, "reserved by the step")
			checkTouched(t, laid, plan, rank)
			peaks = append(peaks, ran.Peak)
		}
	}
	return peaks
}

// checkClasses compares the bytes of a rank at its peak, class by class, with the sum of the plan's
// and the model's.
func checkClasses(t *testing.T, ran *runner.RankResult, planned *layout.RankLayout, model *memory.Stats) {
	t.Helper()
	require.Equal(t, ran.Peak, ran.PeakClasses.Total())
	step := ran.PeakClasses
	for class, bytes := range model.Classes {
		step[class] -= bytes
	}
	require.Equal(t, planned.Peak.Classes, step)
}

// checkTouched compares the pages that the kernel has mapped for steps with those of the layout, and
// the bytes that a step has touched with the bytes that a buffer of the layout covers at some time.
// Without -tags invariants the touched bytes are unknown.
func checkTouched(t *testing.T, r *rig, plan *layout.Memory, rank int) {
	t.Helper()
	if scope := r.hosts[rank].Scope(memory.StepScope); scope.Pages >= 0 {
		page := int64(os.Getpagesize())
		require.Equal(t, (plan.Ranks[rank].Height+page-1)/page*page, scope.Pages, "pages that the kernel has for steps")
	}
	dev, ok := any(r.devs[rank]).(interface {
		Touched() (bytes, top int64, known bool)
	})
	if !ok {
		return
	}
	bytes, top, known := dev.Touched()
	if !known {
		return
	}
	births := slices.Clone(plan.Ranks[rank].Layout.Allocations)
	slices.SortFunc(births, func(a, b memory.Allocation) int { return cmp.Compare(a.Offset, b.Offset) })
	var covered, end int64
	for _, b := range births {
		covered += max(0, b.Offset+b.Bytes-max(b.Offset, end))
		end = max(end, b.Offset+b.Bytes)
	}
	require.Equal(t, plan.Ranks[rank].Height, top, "the highest byte that was touched")
	require.Equal(t, covered, bytes, "bytes that were touched")
}

// group returns a runner for the ranks, with a layout unless profile is nil.
func (r *rig) group(t testing.TB, profile planning.Planner) *runner.Runner[T] {
	t.Helper()
	cfg := r.cfg
	cfg.Memory.Profile = profile
	cfg.Memory.Search.Nodes = 1 // any layout is good enough
	group, err := runner.New(cfg)
	require.NoError(t, err)
	return group
}

// prepare plans a step and returns its layouts.
func prepare(t testing.TB, group *runner.Runner[T], m int, source runner.Source[T]) *layout.Memory {
	t.Helper()
	plan, err := group.Prepare(t.Context(), m, source)
	require.NoError(t, err)
	return plan.(*layout.Memory)
}

// TestWrongLayoutFails runs steps with wrong layouts. A wrong size ends the step; a moved buffer ends
// it if and only if two buffers of the step then share a byte at the same time.
func TestWrongLayoutFails(t *testing.T) {
	s := setup{schedule: "1f1b", ranks: 1, stages: 2, model: tiny, capacity: 1}
	profile := profileOf(t, s, 5)
	r := newRig(t, s, false)
	const m = 6
	sound := r.group(t, profile)
	plan := prepare(t, sound, m, nil)
	good := plan.Ranks[0].Layout
	run := func(change func(l *memory.Layout)) (*layout.Memory, error) {
		group := r.group(t, profile)
		plan := prepare(t, group, m, nil)
		change(plan.Ranks[0].Layout)
		_, err := group.Step(t.Context(), m, r.sources(fixed(5)))
		require.Equal(t, resident(r.devs[0]), r.devs[0].Live(), "everything is released")
		return plan, err
	}
	refused := 0
	for i := range good.Allocations {
		for _, wrong := range []int64{1, -1} {
			_, err := run(func(l *memory.Layout) { l.Allocations[i].Bytes += wrong; l.Allocations[i].AtMost = false; l.Height++ })
			require.ErrorIs(t, err, memory.ErrUnplanned, "birth %d has %+d bytes", i, wrong)
			require.ErrorContains(t, err, fmt.Sprintf("the plan has %d bytes", good.Allocations[i].Bytes+wrong))
		}
		for _, moved := range []int64{-64, -4, 4, 64} {
			if good.Allocations[i].Offset+moved < 0 {
				continue
			}
			plan, err := run(func(l *memory.Layout) { l.Allocations[i].Offset += moved; l.Height += max(moved, 0) })
			if err == nil {
				require.NoError(t, overlaps(plan, 0), "birth %d moved by %d", i, moved)
				continue
			}
			require.ErrorIs(t, err, memory.ErrOverlap)
			require.Error(t, overlaps(plan, 0), "birth %d moved by %d is refused", i, moved)
			refused++
		}
		_, err := run(func(l *memory.Layout) { l.Allocations[i].Class = memory.FP8 })
		require.ErrorIs(t, err, memory.ErrUnplanned)
	}
	t.Logf("%d moved buffers were refused", refused)
	require.Positive(t, refused)
	caught := 0
	for p := range good.Levels {
		_, err := run(func(l *memory.Layout) { l.Levels[p].Live++ })
		if err != nil {
			require.ErrorIs(t, err, batchctx.ErrLeak)
			caught++
		}
	}
	require.Positive(t, caught, "levels at which a microbatch retires")
	_, err := sound.Step(t.Context(), m, r.sources(fixed(5)))
	require.NoError(t, err, "the next step")
}

// overlaps returns an error if two buffers of a step share a byte at the same time.
func overlaps(plan *layout.Memory, rank int) error {
	live := map[int]layout.Change{}
	for c := range plan.All(rank) {
		if !c.Alloc {
			delete(live, c.Serial)
			continue
		}
		for _, other := range live {
			if c.Offset < other.Offset+other.Bytes && other.Offset < c.Offset+c.Bytes {
				return errors.New("two buffers overlap")
			}
		}
		live[c.Serial] = c
	}
	return nil
}

// inFP8 returns the setup with its model in a recipe, and with a width that the recipe allows.
func inFP8(t testing.TB, s setup, name string, attention bool) setup {
	t.Helper()
	recipe, err := fp8.Named(name)
	require.NoError(t, err)
	s.model.FP8, s.model.FP8Attention = recipe, attention
	for s.model.Width = 16; fp8.Divides(recipe, "", s.model.Width) != nil; {
		s.model.Width *= 2
	}
	return s
}

// TestFP8PeakIsPlanned plans copies of weights and saved activations in FP8 from a dry run on Null
// devices. In every recipe the measured peak of a step equals the planned one to the byte, and the
// allocations of the stages equal those of the layout, one by one.
func TestFP8PeakIsPlanned(t *testing.T) {
	for i, name := range fp8.Names {
		for _, s := range []setup{
			{schedule: "depth-first", ranks: 1, stages: 2, model: tiny},
			{schedule: "zb-h1", ranks: 2, stages: 2, capacity: 1, model: tiny},
			{schedule: "interleaved", ranks: 2, stages: 4, capacity: 1, model: tiny},
		} {
			t.Run(name+" "+s.String(), func(t *testing.T) {
				s := inFP8(t, s, name, i%2 == 0)
				s.model.Recompute = i%2 == 1
				m := 24
				if s.model.Width > 64 {
					s.model.Layers, m = 1, 8
				}
				checkPeak(t, s, m)
				checkTrace(t, s, m)
			})
		}
	}
}
