// Package lifetime contains all known leaks, each as a mutant that is caught on the first
// microbatch, and proves that every release in the runner and in the context is necessary.
package lifetime_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/internal/engine/frames"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/stages"
	"github.com/weir-ml/weir/tests/toy"
)

// wrapped is a stage with one of its calls replaced.
type wrapped struct {
	toy.S
	forward  func(ctx context.Context, mb toy.MB, in, out []toy.T) error
	backward func(ctx context.Context, mb toy.MB, gradOut, gradIn []toy.T) error
}

func (w *wrapped) Unwrap() toy.S { return w.S }

func (w *wrapped) Forward(ctx context.Context, mb toy.MB, in, out []toy.T) error {
	if w.forward != nil {
		return w.forward(ctx, mb, in, out)
	}
	return w.S.Forward(ctx, mb, in, out)
}

func (w *wrapped) Backward(ctx context.Context, mb toy.MB, gradOut, gradIn []toy.T) error {
	if w.backward != nil {
		return w.backward(ctx, mb, gradOut, gradIn)
	}
	return w.S.Backward(ctx, mb, gradOut, gradIn)
}

// leak is the expected report of a mutant.
type leak struct {
	stage int
	class memory.Class
	bytes int64
}

// numbers is the number of elements of the toy's tensors, and size their size in bytes.
const numbers, size = 16, 4 * 16

// mutants leak in a call of one stage: before its Forward or its Backward, or in the source.
var mutants = []struct {
	name     string
	stage    int
	forward  func(m *toy.Model, mb toy.MB, in []toy.T) error
	backward func(m *toy.Model, mb toy.MB, gradOut []toy.T) error
	fused    bool // the stage is a fused group
	source   bool // the source keeps the part that the stage reads
	want     leak
}{
	{
		// TransformerEngine #1935: ctx.tensor_objects outlives the backward.
		name: "a stage keeps a saved tensor after its backward", stage: 1, want: leak{1, memory.Activation, size},
		forward: func(_ *toy.Model, mb toy.MB, in []toy.T) error { mb.Retain(in[0]); return nil },
	},
	{
		// TransformerEngine #2750: a fused group of operations restores the tensors that each of
		// them saved from its compressed form, and keeps them.
		name: "a fused group keeps the tensors it restored", stage: 1, fused: true, want: leak{1, memory.Saved, size},
		backward: func(m *toy.Model, _ toy.MB, _ []toy.T) error {
			_, err := m.Device.Alloc(memory.Saved, kernels.Float32, numbers)
			return err
		},
	},
	{
		// Fast-LLM #486: the logged loss keeps the tensor from which it was computed. Loss takes two
		// numbers, so only a closure of the stage can keep the tensor.
		name: "a loss is kept with its tensor", stage: 2, want: leak{2, memory.Activation, size},
		forward: func(_ *toy.Model, mb toy.MB, in []toy.T) error { mb.Retain(in[0]); return nil },
	},
	{
		name: "a stage keeps a batch entry", stage: 0, want: leak{0, memory.Entry, size},
		forward: func(_ *toy.Model, mb toy.MB, _ []toy.T) error { mb.Retain(mb.Part(1)); return nil },
	},
	{
		// A data loader that prefetches keeps a list of its inputs.
		name: "the loader holds an input", source: true, want: leak{2, memory.Entry, size}, // the last reader of the targets
	},
	{
		name: "a workspace is never released", stage: 1, want: leak{1, memory.Workspace, 12},
		backward: func(m *toy.Model, _ toy.MB, _ []toy.T) error {
			_, err := m.Device.Alloc(memory.Workspace, kernels.Float32, 3)
			return err
		},
	},
}

func TestMutantsAreCaughtOnTheFirstMicrobatch(t *testing.T) {
	for _, mutant := range mutants {
		t.Run(mutant.name, func(t *testing.T) {
			model, err := toy.New(3)
			require.NoError(t, err)
			defer model.Device.Close()
			before := model.Device.Live()
			cfg := model.Config()
			inner := cfg.Stages[mutant.stage]
			w := &wrapped{S: inner}
			if mutant.forward != nil {
				w.forward = func(ctx context.Context, mb toy.MB, in, out []toy.T) error {
					mb.Check(mutant.forward(model, mb, in))
					return inner.Forward(ctx, mb, in, out)
				}
			}
			if mutant.backward != nil {
				w.backward = func(ctx context.Context, mb toy.MB, gradOut, gradIn []toy.T) error {
					mb.Check(mutant.backward(model, mb, gradOut))
					return inner.Backward(ctx, mb, gradOut, gradIn)
				}
			}
			cfg.Stages[mutant.stage] = w
			if mutant.fused {
				cfg.Stages[mutant.stage], err = stages.Sequential(inner.Spec().Name, toy.S(w))
				require.NoError(t, err)
			}
			source := model.Source(numbers)
			if mutant.source {
				source = prefetching(model.Device)
			}
			cfg.Hooks.Microbatch = func(s *memory.Sample) { t.Errorf("microbatch %d passed its audit", s.Microbatch) }
			r := newRunner(t, cfg)

			_, err = r.Step(t.Context(), 8, source)
			require.ErrorIs(t, err, batchctx.ErrLeak)
			var found *batchctx.LeakError
			require.True(t, errors.As(err, &found))
			require.Equal(t, mutant.want, leak{found.Stage, found.Class, found.Bytes}, "%v", err)
			require.Equal(t, 0, found.Microbatch)
			require.Equal(t, cfg.Stages[found.Stage].Spec().Name, found.Name)
			require.Equal(t, before, model.Device.Live(), "everything is released after the error")
		})
	}
}

// prefetching returns a source that keeps the targets of every entry. It is called once for each entry
// even with -tags invariants, under which the runner calls a source of runner.Indexed twice.
func prefetching(dev *kernels.Host) runner.Source[toy.T] {
	return source(func(_ context.Context, entry batchctx.Entry[toy.T]) error {
		for part, name := range toy.Parts {
			b := entry.Must(dev.Alloc(memory.Entry, kernels.Float32, numbers))
			if part == 1 {
				entry.Check(dev.Retain(b))
			}
			entry.Put(name, b)
		}
		return nil
	})
}

type source func(context.Context, batchctx.Entry[toy.T]) error

func (s source) Next(ctx context.Context, entry batchctx.Entry[toy.T]) error { return s(ctx, entry) }

// TestAnEntryThatIsNeverDroppedIsCaught reads an entry without the drop that a plan has: the audit
// names its class. Package check rejects such a plan.
func TestAnEntryThatIsNeverDroppedIsCaught(t *testing.T) {
	model, err := toy.New(2)
	require.NoError(t, err)
	defer model.Device.Close()
	c := frames.New(frames.Config[toy.T]{
		Space: model.Device, Parts: toy.Parts,
		Stages: []*frames.Declaration[toy.T]{{Name: "reader", Reads: []frames.Read{{Part: 0}}}},
	})
	c.Begin(0, batchctx.Train, frames.Extent{Plan: &schedule.Plan{StageWindows: []int{1}}, EntryWindow: 1, Wanted: []uint64{1}})
	require.NoError(t, c.BeginEntry(0))
	require.NoError(t, c.EndEntry(model.Source(4).Next(t.Context(), batchctx.Entry[toy.T](c.EntryView()))))
	var found *batchctx.LeakError
	require.True(t, errors.As(c.Audit(frames.Counts{}), &found))
	require.Equal(t, memory.Entry, found.Class)
}

// forgetful loses a buffer when it measures a gradient, if inSquares is set.
type forgetful struct {
	*kernels.Host
	inSquares bool
}

func (f forgetful) SumSquares(h toy.T) (float64, error) {
	if f.inSquares {
		if _, err := f.Alloc(memory.Workspace, kernels.Float32, 5); err != nil {
			return 0, err
		}
	}
	return f.Host.SumSquares(h)
}

// TestALeakAtStepEndIsCaught loses a buffer after the last microbatch has retired.
func TestALeakAtStepEndIsCaught(t *testing.T) { // L6
	for _, leaks := range []bool{false, true} {
		model, err := toy.New(3)
		require.NoError(t, err)
		defer model.Device.Close()
		before := model.Device.Live()
		cfg := model.Config()
		cfg.Gradients = forgetful{model.Device, leaks}
		r := newRunner(t, cfg)
		_, err = r.Step(t.Context(), 2, model.Source(4))
		if leaks {
			require.ErrorIs(t, err, batchctx.ErrLeak)
			require.ErrorContains(t, err, "at step end")
		} else {
			require.NoError(t, err)
		}
		require.Equal(t, before, model.Device.Live())
	}
}
