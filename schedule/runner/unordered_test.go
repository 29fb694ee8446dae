package runner_test

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/internal/engine/invariants"
	"github.com/weir-ml/weir/internal/testing/testkit"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/schedule/runner/record"
	"github.com/weir-ml/weir/stages"
)

// Planned entry parts are matched by name: the source may allocate them in a different order than
// in the dry run, and hand them over in yet another one.
func TestPlannedEntriesGoByName(t *testing.T) {
	sizes := map[string][2]int{"points": {3, 2}, "labels": {3, 5}} // of two shape classes
	entries := func(r *readers, order func(index int) []string, apart bool, class func(index int) int) runner.Source[buffer] {
		return runner.Indexed(func(_ context.Context, e batchctx.Entry[buffer]) error {
			dev, parts := r.devs[e.Rank()], order(e.Index())
			made := map[string]buffer{}
			for _, part := range parts {
				b := e.Must(dev.Alloc(memory.Entry, kernels.Float32, sizes[part][class(e.Index())]))
				values := slices.Repeat([]float32{float32(e.Index())}, b.N)
				if part == "points" {
					values[0] = -1
				}
				e.Check(dev.WriteFloat32(b, values))
				if made[part] = b; !apart {
					e.Put(part, b)
				}
			}
			if apart {
				e.Put("points", made["points"])
				e.Put("labels", made["labels"])
			}
			return nil
		})
	}
	forth := func(int) []string { return []string{"points", "labels"} }
	back := func(int) []string { return []string{"labels", "points"} }
	either := func(index int) []string { return [][]string{forth(0), back(0)}[index%2] }
	fixed := func(class int) func(int) int { return func(int) int { return class } }
	for _, apart := range []bool{false, true} {
		for _, classes := range []int{1, 2} {
			null := newReaders(t, 1, true)
			shapes := []record.Shape[buffer]{{Name: "a", Source: entries(null, forth, apart, fixed(0))}, {Name: "b", Source: entries(null, back, apart, fixed(1))}}
			profile, err := record.Stages(t.Context(), null.cfg, shapes[:classes]...)
			require.NoError(t, err)
			r := newReaders(t, 1, false)
			r.cfg.Memory.Profile = profile
			run := newRunner(t, r.cfg)
			for _, order := range []func(int) []string{forth, back, either} {
				result := runStep(t, run, 9, entries(r, order, apart, func(index int) int { return index / 3 % classes }))
				require.True(t, result.Planned)
				require.EqualValues(t, 0+1+2+3+4+5+6+7+8, result.Losses[0].Sum, "labels are labels")
			}
		}
	}
}

// A source that allocates its parts in a different order than in the dry run causes no
// allocations on the Go heap (L11).
func TestPlannedEntriesInAnotherOrderAllocateNothing(t *testing.T) {
	if testkit.Raced || invariants.Enabled {
		t.Skip("pools forget under the race detector, and with -tags invariants every call has a view of its own")
	}
	values := []float32{1, 2, 3}
	order := []string{"points", "labels"}
	source := func(r *readers) runner.Source[buffer] {
		return runner.Indexed(func(_ context.Context, e batchctx.Entry[buffer]) error {
			for _, part := range order {
				b := e.Must(r.devs[0].Alloc(memory.Entry, kernels.Float32, 3))
				e.Check(r.devs[0].WriteFloat32(b, values))
				e.Put(part, b)
			}
			return nil
		})
	}
	null := newReaders(t, 1, true)
	profile, err := record.Stages(t.Context(), null.cfg, record.Shape[buffer]{Name: "a", Source: source(null)})
	require.NoError(t, err)
	slices.Reverse(order)
	r := newReaders(t, 1, false)
	r.cfg.Memory.Profile = profile
	run := newRunner(t, r.cfg)
	counts := map[int]uint64{}
	for _, m := range []int{16, 1024} {
		counts[m] = testkit.Allocations(func() {
			result, err := run.Step(t.Context(), m, source(r))
			if err != nil || !result.Planned {
				t.Fatal(result, err)
			}
		})
	}
	require.Equal(t, counts[16], counts[1024])
}

// An allocation that is not in the memory plan fails with an error that names the planned
// buffers: the parts of an entry, or the buffers of the stage's action.
func TestUnplannedBuffersAreNamed(t *testing.T) {
	source := func(r *readers, labels int) runner.Source[buffer] {
		return runner.Indexed(func(_ context.Context, e batchctx.Entry[buffer]) error {
			for part, n := range map[string]int{"points": 2, "labels": labels} {
				if e.Wants(part) {
					e.Put(part, e.Must(r.devs[e.Rank()].Alloc(memory.Entry, kernels.Float32, n)))
				}
			}
			return nil
		})
	}
	null := newReaders(t, 1, true)
	profile, err := record.Stages(t.Context(), null.cfg, record.Shape[buffer]{Name: "a", Source: source(null, 3)})
	require.NoError(t, err)
	r := newReaders(t, 1, false)
	r.cfg.Memory.Profile = profile
	run := newRunner(t, r.cfg)
	_, err = run.Step(t.Context(), 2, source(r, 4))
	require.ErrorIs(t, err, memory.ErrUnplanned)
	require.ErrorContains(t, err, "16 bytes (entry) requested")
	require.ErrorContains(t, err, `entry part "points" (8 bytes)`)
	require.ErrorContains(t, err, `entry part "labels" (12 bytes)`)

	null.cfg.Stages[0], r.cfg.Stages[0] = &spender{null.cfg.Stages[0], null.devs[0], 5}, &spender{r.cfg.Stages[0], r.devs[0], 6}
	r.cfg.Memory.Profile, err = record.Stages(t.Context(), null.cfg, record.Shape[buffer]{Name: "a", Source: source(null, 3)})
	require.NoError(t, err)
	run = newRunner(t, r.cfg)
	_, err = run.Step(t.Context(), 2, source(r, 3))
	require.ErrorIs(t, err, memory.ErrUnplanned)
	require.ErrorContains(t, err, "action 0B0 (stage 0 stage, microbatch 0): ")
	require.ErrorContains(t, err, "24 bytes (workspace) requested as allocation 0")
	require.ErrorContains(t, err, "; the plan has here: stage 0 (stage): workspace of B (20 bytes), stage 0 (stage): workspace of B (12 bytes)")
}

// spender is a stage whose backward allocates extra elements.
type spender struct {
	stages.Stage[buffer]
	dev kernels.Compute
	n   int
}

func (s *spender) Unwrap() stages.Stage[buffer] { return s.Stage }

func (s *spender) Backward(ctx context.Context, mb batchctx.Microbatch[buffer], gradOut, gradIn []buffer) error {
	mb.Release(mb.Must(s.dev.Alloc(memory.Workspace, kernels.Float32, s.n)))
	return s.Stage.Backward(ctx, mb, gradOut, gradIn)
}
