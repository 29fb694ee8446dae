package gomlx_test

import (
	"context"
	"fmt"
	"iter"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/stages"
	"github.com/weir-ml/weir/stages/gomlx"
)

// TestMemory: nothing grows with microbatches or with steps, and every buffer that a step
// creates is finalized.
func TestMemory(t *testing.T) {
	m := newModel(t, config(3))
	run := newRunner(t, m.Runner())
	var stats memory.Stats
	var live, peak, made int64
	for i, microbatches := range []int{8, 8, 128, 1024} {
		m.Devices[0].Stats(&stats)
		before := stats.Allocs
		step := runStep(t, run, microbatches, source(m))
		require.Equal(t, memory.Growth{Audited: true}, step.Growth)
		m.Devices[0].Stats(&stats)
		require.Equal(t, stats.Allocs-stats.Frees, int64(buffers(m)))
		each := (stats.Allocs - before) / int64(microbatches)
		require.NoError(t, step.Update(m.Update))
		if i > 0 {
			require.Equal(t, []int64{live, peak, made}, []int64{step.Live, step.Peak, each}, microbatches)
		}
		live, peak, made = m.Devices[0].Live(), step.Peak, each
		if i == 0 { // the optimizer has created its variables
			made = each
			peak = step.Peak + m.Devices[0].Live() - step.Live
		}
	}
}

// buffers returns the number of buffers that the model keeps: variables, the optimizer's
// variables, and accumulators.
func buffers(m *gomlx.Model) (n int) {
	for v := range m.Store.IterVariables() {
		n++
		if v.Trainable {
			n++
		}
	}
	return n
}

// lossy plants a leak into a stage.
type lossy struct {
	stages.Stage[gomlx.T]
	in func(mb batchctx.Microbatch[gomlx.T], in, out []gomlx.T)
}

func (l lossy) Unwrap() stages.Stage[gomlx.T] { return l.Stage }

func (l lossy) Forward(ctx context.Context, mb batchctx.Microbatch[gomlx.T], in, out []gomlx.T) error {
	err := l.Stage.Forward(ctx, mb, in, out)
	l.in(mb, in, out)
	return err
}

// hoarder is a dataset that keeps a copy of every batch on the backend.
type hoarder struct {
	backend *gomlx.Backend
	kept    []train.Batch
	keeps   bool
	ended   bool
}

func (h *hoarder) Name() string { return "hoarder" }

func (h *hoarder) Iter() iter.Seq2[train.Batch, error] {
	return func(yield func(train.Batch, error) bool) {
		defer func() { h.ended = true }()
		for i := 0; ; i++ {
			x, y := data(i)
			batch := train.Batch{
				Inputs: []*tensors.Tensor{tensors.FromFlatDataAndDimensions(x, rows, 4)},
				Labels: []*tensors.Tensor{tensors.FromFlatDataAndDimensions(y, rows, 2)},
			}
			if h.keeps {
				kept, err := batch.OnDeviceClone(h.backend, 0)
				if err != nil {
					yield(train.Batch{}, err)
					return
				}
				h.kept = append(h.kept, kept)
			}
			if !yield(batch, nil) {
				return
			}
		}
	}
}

func TestPlantedLeaks(t *testing.T) {
	const microbatches = 4
	var kept []any
	for name, plant := range map[string]func(m *gomlx.Model, cfg *runner.Config[gomlx.T], ds *hoarder){
		"none": func(*gomlx.Model, *runner.Config[gomlx.T], *hoarder) {},
		"a residual is kept": func(m *gomlx.Model, cfg *runner.Config[gomlx.T], _ *hoarder) {
			cfg.Stages[1] = lossy{cfg.Stages[1], func(mb batchctx.Microbatch[gomlx.T], in, _ []gomlx.T) {
				kept = append(kept, mb.Retain(in[0]))
			}}
		},
		"a loss is kept as a tensor": func(m *gomlx.Model, cfg *runner.Config[gomlx.T], _ *hoarder) {
			mean := graph.MustNewExec(m.Devices[0].Backend(), graph.ReduceAllMean)
			cfg.Stages[1] = lossy{cfg.Stages[1], func(mb batchctx.Microbatch[gomlx.T], in, _ []gomlx.T) {
				x, err := tensors.FromBuffer(in[0])
				mb.Check(err)
				kept = append(kept, mean.MustCall1(x))
			}}
		},
		"a batch is kept by the data set": func(_ *gomlx.Model, _ *runner.Config[gomlx.T], ds *hoarder) { ds.keeps = true },
	} {
		for _, ranks := range []int{1, 2} {
			t.Run(fmt.Sprint(name, ranks), func(t *testing.T) {
				c := config(4)
				c.Ranks = ranks
				m := newModel(t, c)
				cfg, ds := m.Runner(), &hoarder{backend: m.Devices[0].Backend()}
				plant(m, &cfg, ds)
				run := newRunner(t, cfg)
				step, err := run.Step(t.Context(), microbatches, m.Dataset(ds, "x"))
				if err == nil {
					err = step.Update(m.Update)
				}
				require.False(t, ds.ended)
				m.Close()
				require.True(t, ds.ended)
				switch {
				case name == "none":
					require.NoError(t, err)
				case ranks == 2 && name != "a residual is kept": // it is in no rank's book
					require.ErrorIs(t, err, gomlx.ErrKept)
				default:
					require.ErrorIs(t, err, batchctx.ErrLeak)
				}
			})
		}
	}
}

// TestClose: a closed model leaves only its variables on the backend.
func TestClose(t *testing.T) {
	cfg := config(3)
	var err error
	cfg.Backend, err = gomlx.NewBackend("")
	require.NoError(t, err)
	var live []int64
	for range 3 {
		m := newModel(t, cfg)
		run := newRunner(t, m.Runner())
		step := runStep(t, run, 4, source(m))
		require.NoError(t, step.Update(m.Update))
		m.Close()
		m.Close()
		before := values(t, cfg.Store)
		require.ErrorIs(t, m.Update(1), memory.ErrStale)
		require.Equal(t, before, values(t, cfg.Store))
		_, err = run.Step(t.Context(), 4, source(m))
		require.ErrorIs(t, err, memory.ErrStale)
		live = append(live, cfg.Backend.Model().Live())
	}
	require.Equal(t, []int64{live[0], live[0]}, live[1:])
}

func TestUnknownBackend(t *testing.T) {
	_, err := gomlx.NewBackend("nope")
	require.ErrorContains(t, err, "nope")
}

// TestUseAfterFinalize: a buffer can be finalized only once.
func TestUseAfterFinalize(t *testing.T) {
	b, err := gomlx.NewBackend("")
	require.NoError(t, err)
	double := graph.MustNewExec(b, func(x *graph.Node) *graph.Node { return graph.Add(x, x) })
	x := tensors.FromValue([]float32{1, 2})
	buffer, err := x.Buffer(b, 0)
	require.NoError(t, err)
	require.Equal(t, []float32{2, 4}, double.MustCall1(x).Value())
	require.NoError(t, buffer.Finalize())
	require.ErrorIs(t, buffer.Finalize(), memory.ErrStale)
	_, err = buffer.Data()
	require.ErrorIs(t, err, memory.ErrStale)
	_, err = double.Call(x)
	require.ErrorIs(t, err, memory.ErrStale)
}
