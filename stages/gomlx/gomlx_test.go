package gomlx_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/layers/activation"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/model/initializer"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/stages/gomlx"
)

const rows, width = 8, 16

func store() *model.Store {
	s := model.NewStore()
	s.SetParam(model.ParamInitialSeed, int64(42))
	return s
}

// dense returns a layer of the network that the tests train.
func dense(i, out int, act bool) gomlx.Stage {
	s := gomlx.Stage{Name: fmt.Sprint("layer", i), Graph: func(scope *model.Scope, in []*graph.Node) []*graph.Node {
		x := layers.Dense(scope.In("layer%d", i).WithInitializer(initializer.RandomNormalFn(scope, 0.3)), in[0], true, out)
		if act {
			x = activation.Apply(activation.TypeTanh, x)
		}
		return []*graph.Node{x}
	}}
	if i == 0 {
		s.Reads = []string{"x"}
	}
	return s
}

func mlp(n int) (all []gomlx.Stage) {
	for i := range n {
		out := width
		if i == n-1 {
			out = 2
		}
		all = append(all, dense(i, out, i < n-1))
	}
	return all
}

func config(n int) gomlx.Config {
	return gomlx.Config{
		Store: store(), Stages: mlp(n), Loss: loss.MeanSquaredError, Labels: []string{"y"},
		Entry:     map[string]shapes.Shape{"x": shapes.Make(dtypes.Float32, rows, 4), "y": shapes.Make(dtypes.Float32, rows, 2)},
		Optimizer: optimizer.StochasticGradientDescent().WithLearningRate(0.1).WithDecay(false),
	}
}

// data returns microbatch i.
func data(i int) (x, y []float32) {
	random := rand.New(rand.NewPCG(7, uint64(i)))
	x, y = make([]float32, 4*rows), make([]float32, 2*rows)
	for k := range x {
		x[k] = random.Float32() - 0.5
	}
	for k := range y {
		y[k] = x[2*k] * x[2*k+1]
	}
	return x, y
}

func source(m *gomlx.Model) runner.Source[gomlx.T] {
	return runner.Indexed(func(_ context.Context, e batchctx.Entry[gomlx.T]) error {
		x, y := data(e.Index())
		d := m.Devices[e.Rank()]
		if e.Wants("x") {
			e.Put("x", e.Must(d.Floats(memory.Entry, x, rows, 4)))
		}
		if e.Wants("y") {
			e.Put("y", e.Must(d.Floats(memory.Entry, y, rows, 2)))
		}
		return nil
	})
}

func values(t *testing.T, s *model.Store) map[string][]float32 {
	all := map[string][]float32{}
	for v := range s.IterVariables() {
		if v.Trainable {
			x, err := tensors.CopyFlatData[float32](v.MustValue())
			require.NoError(t, err)
			all[v.Path()] = x
		}
	}
	return all
}

// reference trains with GoMLX's own trainer, with gradient accumulation.
func reference(t *testing.T, cfg gomlx.Config, steps, m int) (map[string][]float32, *gomlx.Backend) {
	b, err := gomlx.NewBackend("")
	require.NoError(t, err)
	whole := func(scope *model.Scope, _ any, in []*graph.Node) []*graph.Node {
		for _, s := range cfg.Stages {
			in = s.Graph(scope.Store().RootScope(), in)
		}
		return in
	}
	tr := train.NewTrainer(b, cfg.Store, whole, cfg.Loss, cfg.Optimizer.(optimizer.Interface), nil, nil)
	require.NoError(t, tr.AccumulateGradients(m))
	for range steps {
		for i := range m {
			x, y := data(i)
			out, err := tr.TrainStep(train.Batch{
				Inputs: []*tensors.Tensor{tensors.FromFlatDataAndDimensions(x, rows, 4)},
				Labels: []*tensors.Tensor{tensors.FromFlatDataAndDimensions(y, rows, 2)},
			})
			require.NoError(t, err)
			for _, o := range out {
				o.MustFinalizeAll()
			}
		}
	}
	return values(t, cfg.Store), b
}

func TestEverySchedule(t *testing.T) {
	const steps, microbatches = 3, 8
	want, _ := reference(t, config(4), steps, microbatches)
	for _, c := range []struct {
		schedule string
		ranks    int
	}{{"depth-first", 1}, {"depth-first", 2}, {"1f1b", 4}, {"zb-h1", 4}, {"interleaved", 2}, {"zb-v", 2}} {
		t.Run(fmt.Sprint(c.schedule, c.ranks), func(t *testing.T) {
			cfg := config(4)
			cfg.Schedule, cfg.Ranks = c.schedule, c.ranks
			m := newModel(t, cfg)
			run := newRunner(t, m.Runner())
			for range steps {
				step := runStep(t, run, microbatches, source(m))
				require.Equal(t, 2, step.Books)
				require.Equal(t, memory.Growth{Audited: true}, step.Growth)
				require.NoError(t, step.Update(m.Update))
			}
			require.Equal(t, want, values(t, cfg.Store))
		})
	}
}

// newModel returns a model with a configuration that must be correct.
func newModel(t testing.TB, cfg gomlx.Config) *gomlx.Model {
	t.Helper()
	m, err := gomlx.New(cfg)
	require.NoError(t, err)
	return m
}

func newRunner(t testing.TB, cfg runner.Config[gomlx.T]) *runner.Runner[gomlx.T] {
	t.Helper()
	r, err := runner.New(cfg)
	require.NoError(t, err)
	return r
}

// runStep runs a step that must succeed.
func runStep(t testing.TB, r *runner.Runner[gomlx.T], microbatches int, source runner.Source[gomlx.T]) *runner.Result {
	t.Helper()
	result, err := r.Step(t.Context(), microbatches, source)
	require.NoError(t, err)
	return result
}
