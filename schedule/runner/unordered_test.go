package runner_test

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule/runner"
)

// A planned entry goes by the names of its parts: the source may allocate them in another order
// than in the dry run, and hand them over in yet another one.
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
			shapes := []runner.Shape[buffer]{{Name: "a", Source: entries(null, forth, apart, fixed(0))}, {Name: "b", Source: entries(null, back, apart, fixed(1))}}
			profile, err := runner.Record(t.Context(), null.cfg, shapes[:classes]...)
			require.NoError(t, err)
			r := newReaders(t, 1, false)
			r.cfg.Memory.Profile = profile
			run, err := runner.New(r.cfg)
			require.NoError(t, err)
			for _, order := range []func(int) []string{forth, back, either} {
				result, err := run.Step(t.Context(), 9, entries(r, order, apart, func(index int) int { return index / 3 % classes }))
				require.NoError(t, err)
				require.True(t, result.Planned)
				require.EqualValues(t, 0+1+2+3+4+5+6+7+8, result.Losses[0].Sum, "labels are labels")
			}
		}
	}
}
