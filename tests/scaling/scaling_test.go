// Package scaling shows that nothing grows with the number of microbatches: not the live bytes, the peak,
// the memory of the process or the number of allocations (L6, L7, L11).
package scaling_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/internal/engine/invariants"
	"github.com/weir-ml/weir/internal/testing/testkit"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/stages"
	"github.com/weir-ml/weir/tests/toy"
)

const chain = 3

// open returns a toy model and a runner of it.
func open(tb testing.TB, change func(*toy.Model, *runner.Config[toy.T])) (*toy.Model, *runner.Runner[toy.T]) {
	tb.Helper()
	model, err := toy.New(chain)
	require.NoError(tb, err)
	tb.Cleanup(func() { _ = model.Device.Close() })
	cfg := model.Config()
	if change != nil {
		change(model, &cfg)
	}
	r, err := runner.New(cfg)
	require.NoError(tb, err)
	return model, r
}

func TestGrowthIsZero(t *testing.T) {
	for _, rule := range []struct {
		name string
		plan schedule.Rule
		ms   []int
	}{
		{"depth-first", schedule.DepthFirst, []int{1, 8, 128, 1024, 4096, 65536}},
		{"breadth-first", schedule.BreadthFirst, []int{1, 8, 128, 1024}},
	} {
		t.Run(rule.name, func(t *testing.T) {
			records := 0
			model, r := open(t, func(_ *toy.Model, cfg *runner.Config[toy.T]) {
				cfg.Plan.Rule = rule.plan
				cfg.Hooks.Microbatch = func(s *memory.Sample) {
					records++
					if s.Growth != 0 || s.Excess != 0 {
						t.Errorf("microbatch %d grew by %d bytes to an excess of %d", s.Microbatch, s.Growth, s.Excess)
					}
				}
			})
			before := model.Device.Live()
			for _, m := range rule.ms {
				records = 0
				result, err := r.Step(t.Context(), m, model.Source(-3))
				require.NoError(t, err)
				require.Zero(t, result.Growth.Bytes, "M = %d", m)
				require.Equal(t, m, records)
				require.Equal(t, 2, result.Books)
				require.Equal(t, 2*chain*m, result.Actions)
				require.Equal(t, before, model.Device.Live(), "M = %d", m)
			}
		})
	}
}

// TestPeakDoesNotDependOnM checks that a step's peak and its reserved bytes are the same for 8 and for 4096 microbatches.
func TestPeakDoesNotDependOnM(t *testing.T) {
	model, r := open(t, func(_ *toy.Model, cfg *runner.Config[toy.T]) { cfg.Plan.LookAhead = 2 })
	var peak, reserved int64
	for _, m := range []int{8, 4096} {
		result, err := r.Step(t.Context(), m, model.Source(16))
		require.NoError(t, err)
		if peak == 0 {
			peak, reserved = result.Peak, result.Reserved
		}
		require.Equal(t, peak, result.Peak, "M = %d", m)
		require.Equal(t, reserved, result.Reserved, "M = %d", m)
	}
	require.Positive(t, peak)
}

// TestPlantedLeakIsMeasured is the positive control: it loses 240 KiB in every microbatch, which
// must be reported exactly.
func TestPlantedLeakIsMeasured(t *testing.T) {
	const planted = 240 << 10
	model, r := open(t, func(model *toy.Model, cfg *runner.Config[toy.T]) {
		cfg.Memory.TolerateLeaks = true
		cfg.Stages[1] = leaky{cfg.Stages[1], model.Device}
		cfg.Hooks.Microbatch = func(s *memory.Sample) {
			if s.Growth != planted {
				t.Errorf("microbatch %d: growth %d, planted %d", s.Microbatch, s.Growth, planted)
			}
		}
	})
	result, err := r.Step(t.Context(), 128, model.Source(16))
	require.NoError(t, err)
	require.EqualValues(t, 245760, result.Growth.Bytes)
	require.EqualValues(t, 128*245760, result.Excess)
}

type leaky struct {
	toy.S
	dev *kernels.Host
}

func (l leaky) Unwrap() toy.S { return l.S }

func (l leaky) Forward(ctx context.Context, mb toy.MB, in, out []toy.T) error {
	if _, err := l.dev.Alloc(memory.Workspace, kernels.Uint8, 240<<10); err != nil {
		return err
	}
	return l.S.Forward(ctx, mb, in, out)
}

// TestAllocationsDoNotScale counts the allocations of whole steps on the Go heap.
func TestAllocationsDoNotScale(t *testing.T) {
	if invariants.Enabled {
		t.Skip("with -tags invariants every call gets a view of its own, so that a kept one never works again")
	}
	model, r := open(t, func(_ *toy.Model, cfg *runner.Config[toy.T]) {
		cfg.Hooks.Microbatch = func(*memory.Sample) {}
		cfg.Hooks.Action = func(int, schedule.Action) {}
	})
	source := model.Source(-3)
	step := func(m int) func() {
		return func() {
			if _, err := r.Step(t.Context(), m, source); err != nil {
				t.Fatal(err)
			}
		}
	}
	want := testkit.Allocations(step(128))
	require.Less(t, want, uint64(32))
	require.Equal(t, want, testkit.Allocations(step(65536), want))
}

// BenchmarkStep measures the runner with stages that compute nothing, with both books, a ring of samples
// and both hooks.
func BenchmarkStep(b *testing.B) {
	for _, m := range []int{128, 65536} {
		b.Run(map[int]string{128: "microbatches=128", 65536: "microbatches=65536"}[m], func(b *testing.B) {
			arena, err := memory.NewArena(memory.ArenaConfig{Capacity: 1 << 20})
			require.NoError(b, err)
			defer arena.Close()
			alloc := func(class memory.Class) (memory.Handle, error) { return arena.Alloc(class, 64) }
			cfg := runner.Config[memory.Handle]{Spaces: runner.Spaces(arena)}
			for s := range 4 {
				cfg.Stages = append(cfg.Stages, &empty[memory.Handle]{alloc: alloc, first: s == 0, last: s == 3})
			}
			cfg.Hooks.Microbatch = func(*memory.Sample) {}
			cfg.Hooks.Action = func(int, schedule.Action) {}
			r, err := runner.New(cfg)
			require.NoError(b, err)
			source := emptySource(alloc)
			ctx, cancel := context.WithCancel(b.Context())
			defer cancel()
			actions := 0
			_, err = r.Step(ctx, m, source) // the first step plans
			require.NoError(b, err)
			b.ReportAllocs()
			for b.Loop() {
				result, err := r.Step(ctx, m, source)
				if err != nil {
					b.Fatal(err)
				}
				actions = result.Actions
			}
			perAction := float64(b.N) * float64(actions)
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/perAction, "ns/action")
		})
	}
}

// empty is a stage that computes nothing. Its forward saves its input and allocates an output; its
// backward takes the input and allocates a gradient.
type empty[T any] struct {
	alloc       func(class memory.Class) (T, error)
	first, last bool
}

func (e *empty[T]) Spec() stages.Spec {
	spec := stages.Spec{Name: "empty", Slots: []string{"x"}}
	if e.first {
		spec.Reads = []stages.Read{{Part: "tokens"}}
	} else {
		spec.Inputs = []stages.Port{{Name: "x"}}
	}
	if !e.last {
		spec.Outputs = []stages.Port{{Name: "x"}}
	}
	return spec
}

func (e *empty[T]) Forward(_ context.Context, mb batchctx.Microbatch[T], in, out []T) (err error) {
	if !e.first {
		mb.Save(1, mb.Retain(in[0]))
	}
	if !e.last {
		out[0], err = e.alloc(memory.Activation)
	}
	return err
}

func (e *empty[T]) Backward(_ context.Context, mb batchctx.Microbatch[T], _, gradIn []T) (err error) {
	if !e.first {
		_ = mb.Take(1)
		gradIn[0], err = e.alloc(memory.ActGrad)
	}
	return err
}

// emptySource returns a source of entries for empty stages.
func emptySource[T any](alloc func(class memory.Class) (T, error)) runner.Source[T] {
	return runner.Indexed(func(_ context.Context, entry batchctx.Entry[T]) error {
		if entry.Wants("tokens") {
			entry.Put("tokens", entry.Must(alloc(memory.Entry)))
		}
		return nil
	})
}
