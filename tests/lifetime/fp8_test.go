package lifetime_test

import (
	"context"
	"errors"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/fp8"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/stages"
)

// kept is the set of buffers that a mutant never releases: the attribute, cache, list or queue
// of the code on which it is modelled.
type kept []buffer

// alloc allocates and keeps.
func (k *kept) alloc(l *linear, class memory.Class, n int) error {
	b, err := l.dev.Alloc(class, kernels.Float32, n)
	*k = append(*k, b)
	return err
}

// The thirteen ways in which training in eight bits has leaked in other projects, in the order
// of docs/lifetimes.md, each in a stage with that leak. The first microbatch ends the step, and
// the error has the owner, the class and the number of bytes.
func TestFP8MutantsAreCaughtOnTheFirstMicrobatch(t *testing.T) {
	encoding := shape("", 0, 0).Encoding
	for _, mutant := range []struct {
		name   string
		change func(n *network)
		want   leak
	}{
		{
			// TransformerEngine #1935: ctx.tensor_objects outlives the restore.
			name: "1 the context of a backward keeps its saved tensor",
			change: func(n *network) {
				var objects kept
				n.linear.backward = func(_ *linear, mb microbatch, _ buffer, x, _ *fp8.Tensor) error {
					_, columnwise := x.Buffers()
					objects = append(objects, mb.Retain(columnwise))
					return nil
				}
			},
			want: leak{1, memory.FP8, int64(encoding.Bytes(in, rows))},
		},
		{
			// NeMo-RL #2003, verl #6953: module._fp8_workspaces.
			name: "2 the first microbatch quantizes the weight into the module's cache",
			change: func(n *network) {
				var workspaces []fp8.Tensor
				n.linear.forward = func(l *linear, _ microbatch, _ buffer) error {
					if len(workspaces) > 0 {
						return nil
					}
					w, err := l.quantize(l.weight, shape("weight", in, out), fp8.Columnwise)
					workspaces = append(workspaces, w)
					return err
				}
			},
			want: leak{1, memory.FP8, int64(encoding.Bytes(out, in))},
		},
		{
			// TransformerEngine #2681, #2717: the transpose that the first backward caches.
			name: "3 the first backward caches the weight's other orientation",
			change: func(n *network) {
				var cache []fp8.Tensor
				n.linear.backward = func(l *linear, _ microbatch, _ buffer, _, _ *fp8.Tensor) error {
					if len(cache) > 0 {
						return nil
					}
					w, err := l.quantize(l.weight, shape("weight", in, out), fp8.Rowwise)
					cache = append(cache, w)
					return err
				}
			},
			want: leak{1, memory.FP8, int64(encoding.Bytes(in, out))},
		},
		{
			// TransformerEngine #1261, #1764: both layouts of an activation. Save takes one, so
			// the other has to be kept without it.
			name: "4 the other half of a saved tensor is kept",
			change: func(n *network) {
				var both kept
				n.linear.save = func(_ *linear, mb microbatch, x *fp8.Tensor) error {
					rowwise, _ := x.Buffers()
					both = append(both, mb.Retain(rowwise))
					return errors.Join(x.Keep(mb, fp8.Columnwise), x.Save(mb, batchctx.ByBackward, 1))
				}
			},
			want: leak{1, memory.FP8, int64(encoding.Bytes(rows, in))},
		},
		{
			// at::empty({1}) for every quantization, which clear() skips. Here scales have no
			// buffer of their own, so the mutant must allocate one.
			name: "5 a scale has an allocation of its own",
			change: func(n *network) {
				var scales kept
				n.linear.forward = func(l *linear, _ microbatch, _ buffer) error { return scales.alloc(l, memory.FP8, 1) }
			},
			want: leak{1, memory.FP8, 4},
		},
		{
			// Lists of histories that are extended whenever a module is seen again.
			name: "6 a history is registered again",
			change: func(n *network) {
				var registered []*fp8.Slab
				n.linear.forward = func(l *linear, _ microbatch, _ buffer) error {
					state, err := fp8.NewState(fp8.DelayedScaling{Format: fp8.Hybrid}, []fp8.Slot{{Name: "input"}})
					if err != nil {
						return err
					}
					slab, err := fp8.NewSlab(l.dev, state, []int{0})
					registered = append(registered, slab)
					return err
				}
			},
			want: leak{1, memory.Resident, 4 * 2 * kernels.TallyWords},
		},
		{
			// The deque into which the first pass pushes scales and histories for the second.
			name: "7 scales are stashed for a recompute",
			change: func(n *network) {
				var stash kept
				n.linear.forward = func(l *linear, _ microbatch, _ buffer) error { return stash.alloc(l, memory.Saved, 3) }
				n.stages[1] = stages.Recompute(stages.Stage[buffer](n.linear))
			},
			want: leak{1, memory.Saved, 2 * 4 * 3}, // by the forward, and again by the recompute
		},
		{
			// WeightGradStore: a queue of inputs and gradients whose popped elements are kept.
			name: "8 a queue of delayed weight gradients is not emptied",
			change: func(n *network) {
				var queue kept
				n.linear.backward = func(_ *linear, mb microbatch, gradOut buffer, _, _ *fp8.Tensor) error {
					queue = append(queue, mb.Retain(gradOut))
					return nil
				}
			},
			want: leak{1, memory.ActGrad, 4 * rows * out},
		},
		{
			// lru_cache around the workspace of products.
			name: "9 the workspace of a product is cached",
			change: func(n *network) {
				var cache kept
				n.linear.forward = func(l *linear, _ microbatch, _ buffer) error {
					if cache != nil {
						return nil
					}
					return cache.alloc(l, memory.Workspace, 1<<10)
				}
			},
			want: leak{1, memory.Workspace, 4 << 10},
		},
		{
			// _dummy_wgrads, by shape and type.
			name: "10 a dummy gradient is cached by its shape",
			change: func(n *network) {
				dummies := map[[2]int]buffer{}
				n.linear.backward = func(l *linear, _ microbatch, _ buffer, _, _ *fp8.Tensor) (err error) {
					if _, ok := dummies[[2]int{in, out}]; !ok {
						dummies[[2]int{in, out}], err = l.dev.Alloc(memory.ActGrad, kernels.Float32, in*out)
					}
					return err
				}
			},
			want: leak{1, memory.ActGrad, 4 * in * out},
		},
		{
			// NeMo-RL 04fc13775: ctx, run_function, the layer, its probabilities, ctx.
			name: "11 a recomputed call holds its input",
			change: func(n *network) {
				var run []func() buffer
				n.linear.forward = func(_ *linear, mb microbatch, x buffer) error {
					x = mb.Retain(x)
					run = append(run, func() buffer { return x })
					return nil
				}
				n.stages[1] = stages.Recompute(stages.Stage[buffer](n.linear))
			},
			want: leak{1, memory.Activation, 4 * rows * in},
		},
		{
			// Fast-LLM #486: a logged loss with the tensor from which it was computed.
			name: "12 a logged number keeps its operand",
			change: func(n *network) {
				var logged []func() buffer
				top := n.stages[2].(*stages.Func[buffer])
				forward := top.ForwardFunc
				top.ForwardFunc = func(ctx context.Context, mb microbatch, from, to []buffer) error {
					y := mb.Retain(from[0])
					logged = append(logged, func() buffer { return y })
					return forward(ctx, mb, from, to)
				}
			},
			want: leak{2, memory.Activation, 4 * rows * out},
		},
		{
			// NeMo-RL #2319: long-lived tables between short-lived buffers.
			name: "13 a small table is made within a step",
			change: func(n *network) {
				var tables kept
				n.linear.forward = func(l *linear, _ microbatch, _ buffer) error {
					b, err := l.dev.AllocIn(memory.Metadata, kernels.Float32, 16)
					tables = append(tables, b)
					return err
				}
			},
			want: leak{1, memory.Resident, 64},
		},
	} {
		t.Run(mutant.name, func(t *testing.T) {
			n := newNetwork(t)
			before := n.dev.Live()
			mutant.change(n)
			cfg := n.config()
			cfg.Hooks.Microbatch = func(s *memory.Sample) { t.Errorf("microbatch %d passed its audit", s.Microbatch) }
			r, err := runner.New(cfg)
			require.NoError(t, err)
			_, err = r.Step(t.Context(), 4, n)
			var found *batchctx.LeakError
			require.ErrorAs(t, err, &found)
			require.Equal(t, mutant.want, leak{found.Stage, found.Class, found.Bytes}, "%v", err)
			require.Equal(t, 0, found.Microbatch)
			if found.Class == memory.Resident {
				before += found.Bytes // the only class that is never reclaimed: it may belong to the model
			}
			require.Equal(t, before, n.dev.Live(), "everything is taken back after the error")
			require.NoError(t, r.Close())
		})
	}
}

// The layer without a mutant trains with flat memory.
func TestFP8LinearIsFlat(t *testing.T) {
	n := newNetwork(t)
	before := n.dev.Live()
	r, err := runner.New(n.config())
	require.NoError(t, err)
	for range 2 {
		result, err := r.Step(t.Context(), 64, n)
		require.NoError(t, err)
		require.Zero(t, result.Growth.Bytes)
		require.Equal(t, before, n.dev.Live())
	}
	_, err = r.Evaluate(t.Context(), 8, n)
	require.NoError(t, err)
	require.Equal(t, before, n.dev.Live())
	require.NoError(t, r.Close())
}

// A copy that a plan makes and a module keeps is covered by its own book until the plan drops
// it. Then the step ends, in the same step.
func TestACopyKeptBeyondItsDropIsCaught(t *testing.T) {
	for _, m := range []int{1, 4} {
		n := newNetwork(t)
		before := n.dev.Live()
		var workspaces kept
		n.linear.forward = func(l *linear, mb microbatch, _ buffer) error {
			w := mb.WeightCopy(1)
			if len(workspaces) == 0 {
				workspaces = append(workspaces, mb.Retain(w))
			}
			return nil
		}
		r, err := runner.New(n.config())
		require.NoError(t, err)
		_, err = r.Step(t.Context(), m, n)
		var found *batchctx.LeakError
		require.ErrorAs(t, err, &found)
		require.Equal(t, memory.FP8, found.Class)
		require.Equal(t, m-1, found.Microbatch, "the last forward that reads it")
		require.Equal(t, before, n.dev.Live())
		require.NoError(t, r.Close())
	}
}

// Leaks that the API cannot express, or rejects by name.
func TestFP8LeaksThatCannotBeSaid(t *testing.T) {
	refused := func(want error, name string, change func(n *network)) {
		t.Helper()
		n := newNetwork(t)
		before := n.dev.Live()
		change(n)
		r, err := runner.New(n.config())
		require.NoError(t, err)
		_, err = r.Step(t.Context(), 4, n)
		require.ErrorIs(t, err, want, name)
		require.Equal(t, before, n.dev.Live(), name)
		require.NoError(t, r.Close())
	}
	refused(batchctx.ErrTaken, "saved state is taken twice", func(n *network) {
		n.linear.backward = func(_ *linear, mb microbatch, _ buffer, _, _ *fp8.Tensor) error {
			_, err := fp8.Take(mb, 1, shape("input", rows, in), fp8.Columnwise)
			return err
		}
	})
	refused(fp8.ErrLost, "both halves are saved", func(n *network) {
		n.linear.save = func(_ *linear, mb microbatch, x *fp8.Tensor) error { return x.Save(mb, batchctx.ByBackward, 1) }
	})
	refused(fp8.ErrKept, "a half is used after another one was kept", func(n *network) {
		n.linear.save = func(_ *linear, mb microbatch, x *fp8.Tensor) error {
			err := x.Keep(mb, fp8.Columnwise)
			_, used := x.Rowwise()
			return errors.Join(err, used)
		}
	})
	refused(batchctx.ErrMisplaced, "a backward reads the forward's copy", func(n *network) {
		n.linear.backward = func(_ *linear, mb microbatch, _ buffer, _, _ *fp8.Tensor) error {
			mb.WeightCopy(1)
			return nil
		}
	})
	refused(batchctx.ErrContribution, "a gradient is not contributed to, so that a dummy is wanted", func(n *network) {
		n.stages[1] = &noGradient{n.linear}
	})

	// A scale without a buffer of its own cannot outlive its data: there is one buffer in a
	// quantized matrix, and one for each half of a tensor.
	require.Equal(t, 1, buffersIn(reflect.TypeFor[kernels.Quantized]()))
	require.Equal(t, 2, buffersIn(reflect.TypeFor[fp8.Tensor]()))
	// A state does not remember microbatches: it has the same size after a thousand steps as
	// before the first, and a slab is one buffer.
	state, err := fp8.NewState(fp8.DelayedScaling{Format: fp8.Hybrid}, []fp8.Slot{{Name: "x"}})
	require.NoError(t, err)
	first, err := state.MarshalBinary()
	require.NoError(t, err)
	for range 1000 {
		_, err = state.End([]fp8.Tally{{Amax: 0x3f800000}})
		require.NoError(t, err)
	}
	last, err := state.MarshalBinary()
	require.NoError(t, err)
	require.Len(t, last, len(first))
	require.Equal(t, 1, buffersIn(reflect.TypeFor[fp8.Slab]()))
}

// noGradient is a stage that omits its parameter's gradient.
type noGradient struct{ *linear }

func (s *noGradient) Backward(_ context.Context, mb microbatch, _, gradIn []buffer) error {
	x, err := fp8.Take(mb, 1, shape("input", rows, in), fp8.Columnwise)
	if err != nil {
		return err
	}
	gradIn[0], err = s.dev.Alloc(memory.ActGrad, kernels.Float32, rows*in)
	return errors.Join(err, s.dev.Zero(gradIn[0]), x.Release(mb))
}

// buffersIn counts the buffers of a type.
func buffersIn(t reflect.Type) (n int) {
	for i := range t.NumField() {
		if t.Field(i).Type == reflect.TypeFor[buffer]() {
			n++
		}
	}
	return n
}

// A long-lived table is on pages of its own scope, at whatever point of a step it was
// allocated: the memory of the steps is returned to the system as a whole.
func TestTablesAnchorNothing(t *testing.T) {
	n := newNetwork(t)
	r, err := runner.New(n.config())
	require.NoError(t, err)
	for range 8 {
		_, err = r.Step(t.Context(), 4, n)
		require.NoError(t, err)
		_, err = n.dev.AllocIn(memory.Metadata, kernels.Float32, 16)
		require.NoError(t, err)
	}
	require.NoError(t, n.dev.ReleasePages(nil, memory.StepScope, memory.Gradients))
	for _, scope := range []memory.Scope{memory.StepScope, memory.Gradients} {
		stats := n.dev.Scope(scope)
		require.Zero(t, stats.Live+stats.Reserved, "%v", scope)
		require.LessOrEqual(t, stats.Pages, int64(0), "%v", scope)
	}
	require.Equal(t, int64(8*64), n.dev.Scope(memory.Metadata).Live)
	require.NoError(t, n.dev.RestorePages(nil))
	require.NoError(t, r.Close())
}
