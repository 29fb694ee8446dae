package gomlx_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/layers/regularizer"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/model/checkpoint"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/stages/gomlx"
)

// trained runs steps of 8 microbatches and returns the weights.
func trained(t *testing.T, cfg gomlx.Config, steps int) map[string][]float32 {
	m := newModel(t, cfg)
	rc := m.Runner()
	rc.FirstStep = optimizer.GetGlobalStep(cfg.Store)
	run := newRunner(t, rc)
	for range steps {
		step := runStep(t, run, 8, source(m))
		require.Equal(t, memory.Growth{Audited: true}, step.Growth)
		require.NoError(t, step.Update(m.Update))
	}
	return values(t, cfg.Store)
}

func adamw(cfg gomlx.Config) gomlx.Config {
	cfg.Optimizer = optimizer.Adam().WeightDecay(0.01).LearningRate(0.01).Done().(gomlx.Optimizer)
	return cfg
}

func dropout(cfg gomlx.Config) gomlx.Config {
	for i, s := range cfg.Stages[:2] {
		cfg.Stages[i].Graph = func(scope *model.Scope, in []*graph.Node) []*graph.Node {
			return []*graph.Node{layers.DropoutStatic(scope, s.Graph(scope, in)[0], 0.25)}
		}
	}
	return cfg
}

// shared makes two stages use the same weights.
func shared(cfg gomlx.Config) gomlx.Config {
	again := cfg.Stages[1]
	again.Name = "layer1 again"
	cfg.Stages[2] = again
	return cfg
}

// TestTraining compares weights: with those of GoMLX's trainer if they should agree, and with
// those of other plans.
func TestTraining(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(gomlx.Config) gomlx.Config
		within float64 // tolerance against GoMLX's trainer; 0 means bit-equal, -1 other random numbers
	}{
		{"adamw", adamw, 0},
		{"dropout", dropout, -1},
		{"shared weights", shared, 1e-6}, // GoMLX first adds the uses of each microbatch
		{"recompute", func(cfg gomlx.Config) gomlx.Config {
			cfg.Recompute = func(*graph.Node) bool { return true }
			return cfg
		}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			first := trained(t, c.change(config(4)), 3)
			if c.within >= 0 {
				want, _ := reference(t, c.change(config(4)), 3, 8)
				for path, x := range want {
					require.InDeltaSlice(t, x, first[path], c.within, path)
				}
			}
			for _, plan := range []string{"1f1b", "zb-h1"} {
				cfg := c.change(config(4))
				cfg.Schedule, cfg.Ranks = plan, 4
				require.Equal(t, first, trained(t, cfg, 3), plan)
			}
		})
	}
}

// TestRecompute: recomputed nodes are not kept, and the results are the same.
func TestRecompute(t *testing.T) {
	kept := func(recompute func(*graph.Node) bool) (bytes int64) {
		cfg := config(4)
		cfg.Recompute = recompute
		m := newModel(t, cfg)
		programs, _ := m.Programs()
		for _, p := range programs {
			bytes += p.Kept
		}
		return bytes
	}
	all := func(*graph.Node) bool { return true }
	require.Less(t, kept(all), kept(nil))
	cfg := dropout(config(4))
	cfg.Recompute = all
	require.Equal(t, trained(t, dropout(config(4)), 2), trained(t, cfg, 2)) // the same draws
}

// TestDraws: microbatches, steps and seeds have different draws, and a new run has the same
// ones (L9).
func TestDraws(t *testing.T) {
	sum := func(seed uint64, first int64, microbatches int) float64 {
		cfg := around(one(func(s *model.Scope, x *graph.Node) *graph.Node {
			return layers.Dense(s.In("d"), layers.DropoutStatic(s, x, 0.5), false, 6)
		}), []int{16, 6})
		m := newModel(t, cfg)
		rc := m.Runner()
		rc.Seed, rc.FirstStep = seed, first
		run := newRunner(t, rc)
		ones := make([]float32, 16*6)
		for i := range ones {
			ones[i] = 1
		}
		step := runStep(t, run, microbatches, runner.Indexed(func(_ context.Context, e batchctx.Entry[gomlx.T]) error {
			e.Put("x", e.Must(m.Devices[0].Floats(memory.Entry, ones, 16, 6)))
			return nil
		}))
		return step.Losses[0].Sum
	}
	once := sum(1, 0, 1)
	require.Equal(t, once, sum(1, 0, 1))
	require.NotEqual(t, 2*once, sum(1, 0, 2))
	require.NotEqual(t, once, sum(2, 0, 1))
	require.NotEqual(t, once, sum(1, 1, 1))
}

// TestCheckpoint resumes from a checkpoint of GoMLX, with the weights of an uninterrupted run.
func TestCheckpoint(t *testing.T) {
	dir := t.TempDir()
	want := trained(t, dropout(adamw(config(4))), 4)
	cfg := dropout(adamw(config(4)))
	trained(t, cfg, 2)
	handler, err := checkpoint.Build(cfg.Store).Dir(dir).Done()
	require.NoError(t, err)
	require.NoError(t, handler.Save())
	cfg = dropout(adamw(config(4)))
	_, err = checkpoint.Load(cfg.Store).Dir(dir).Immediate().Done()
	require.NoError(t, err)
	require.Equal(t, want, trained(t, cfg, 2))
}

// TestMasksAndMetrics: uneven microbatches with a mask give the result of one large batch.
func TestMasksAndMetrics(t *testing.T) {
	ends := []int{0, 8, 9, 16, 24}
	var losses, metrics []float64
	var weights []map[string][]float32
	for _, cuts := range [][]int{ends, {0, 24}} {
		cfg := config(2)
		cfg.Labels = []string{"y", "mask"}
		cfg.Entry["mask"] = shapes.Make(dtypes.Bool, rows)
		cfg.Metrics = map[string]gomlx.Loss{"bias": func(labels, p []*graph.Node) *graph.Node {
			return graph.MaskedReduceAllMean(graph.ReduceSum(graph.Sub(p[0], labels[0]), -1), labels[1])
		}}
		m := newModel(t, cfg)
		run := newRunner(t, m.Runner())
		step := runStep(t, run, len(cuts)-1, runner.Indexed(func(_ context.Context, e batchctx.Entry[gomlx.T]) error {
			var x, y []float32
			var mask []bool
			for i := cuts[e.Index()]; i < cuts[e.Index()+1]; i++ {
				row, label := data(i)
				x, y, mask = append(x, row[:4]...), append(y, label[:2]...), append(mask, i%3 > 0)
			}
			n, d := len(x)/4, m.Devices[0]
			e.Put("x", e.Must(d.Floats(memory.Entry, x, n, 4)))
			e.Put("y", e.Must(d.Floats(memory.Entry, y, n, 2)))
			e.Put("mask", e.Must(d.Put(memory.Entry, mask, shapes.Make(dtypes.Bool, n))))
			return nil
		}))
		require.Equal(t, 16.0, step.Losses[0].Weight)
		require.NoError(t, step.Update(m.Update))
		losses, metrics = append(losses, step.Loss("loss")), append(metrics, step.Loss("bias"))
		weights = append(weights, values(t, cfg.Store))
	}
	require.InEpsilon(t, losses[1], losses[0], 1e-6)
	require.InEpsilon(t, metrics[1], metrics[0], 1e-5)
	for path, x := range weights[1] {
		require.InDeltaSlice(t, x, weights[0][path], 1e-6, path)
	}
}

// TestMaskOfRows: for a loss of each element, a mask of rows that is set everywhere has no
// effect.
func TestMaskOfRows(t *testing.T) {
	var losses []float64
	for _, labels := range [][]string{{"y"}, {"y", "mask"}} {
		cfg := config(2)
		cfg.Labels, cfg.Entry["mask"] = labels, shapes.Make(dtypes.Bool, rows)
		cfg.Loss = func(labels, p []*graph.Node) *graph.Node { return graph.Square(graph.Sub(p[0], labels[0])) }
		m := newModel(t, cfg)
		run := newRunner(t, m.Runner())
		step := runStep(t, run, 2, runner.Indexed(func(_ context.Context, e batchctx.Entry[gomlx.T]) error {
			x, y := data(e.Index())
			e.Put("x", e.Must(m.Devices[0].Floats(memory.Entry, x, rows, 4)))
			e.Put("y", e.Must(m.Devices[0].Floats(memory.Entry, y, rows, 2)))
			if e.Wants("mask") {
				set := slices.Repeat([]bool{true}, rows)
				e.Put("mask", e.Must(m.Devices[0].Put(memory.Entry, set, shapes.Make(dtypes.Bool, rows))))
			}
			return nil
		}))
		losses = append(losses, step.Loss("loss"))
	}
	require.Equal(t, losses[0], losses[1])
}

// TestShapes: one more set of shapes than MaxShapes compiles again, and a step may mix sets.
func TestShapes(t *testing.T) {
	cfg := config(2)
	cfg.MaxShapes = 2
	m := newModel(t, cfg)
	run := newRunner(t, m.Runner())
	var before int
	for i, of := range []int{2, 2, 3} {
		step := runStep(t, run, 12, runner.Indexed(func(_ context.Context, e batchctx.Entry[gomlx.T]) error {
			n := 1 + e.Index()%of
			x, y := data(e.Index())
			e.Put("x", e.Must(m.Devices[0].Floats(memory.Entry, x[:4*n], n, 4)))
			e.Put("y", e.Must(m.Devices[0].Floats(memory.Entry, y[:2*n], n, 2)))
			return nil
		}))
		require.Equal(t, memory.Growth{Audited: true}, step.Growth)
		programs, compiled := m.Programs()
		require.Len(t, programs, 2*cfg.MaxShapes)
		require.Positive(t, programs[0].Kept)
		require.Equal(t, []int{8, 0, 40}[i], compiled-before) // forward and backward for two stages; two exist already
		before = compiled
	}
}

func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		name, says string
		layer      graphFn
	}{
		{"running averages", "its forward changes /mean", one(func(s *model.Scope, x *graph.Node) *graph.Node {
			v := s.VariableWithValue("mean", float32(0)).SetTrainable(false)
			v.SetNodeValue(graph.Add(v.NodeValue(x), graph.ReduceAllMean(x)))
			return graph.Sub(x, v.NodeValue(x))
		})},
		{"regularization", "adds the regularization loss", func(s *model.Scope, in []*graph.Node) []*graph.Node {
			v := s.VariableWithValue("v", []float32{1, 2})
			regularizer.L2(0.1)(in[0].Graph(), v)
			return []*graph.Node{graph.Add(in[0], graph.ReduceAllSum(v.NodeValue(in[0])))}
		}},
		{"an auxiliary loss", "adds the auxiliary loss", one(func(_ *model.Scope, x *graph.Node) *graph.Node {
			train.AddMainLoss(graph.ReduceAllMean(x))
			return x
		})},
		{"an auxiliary loss, as it was called", "train.AddLoss", one(func(_ *model.Scope, x *graph.Node) *graph.Node {
			train.AddLoss(graph.ReduceAllMean(x))
			return x
		})},
		{"a part that is not declared", `stage "layer": its graph function gets 1 inputs, 1 from the previous stage and the parts of its Reads, []; if it uses another one, name it in Stage.Reads: runtime error: index out of range [1] with length 1`,
			func(_ *model.Scope, in []*graph.Node) []*graph.Node { return []*graph.Node{graph.Add(in[0], in[1])} }},
		{"an update of every step", "AddPerStepUpdateGraphFn", func(s *model.Scope, in []*graph.Node) []*graph.Node {
			train.AddPerStepUpdateGraphFn(s, in[0].Graph(), func(*model.Scope, *graph.Graph) {})
			return in
		}},
		{"integers", "is Int32 and has no gradient", one(func(_ *model.Scope, x *graph.Node) *graph.Node { return graph.ConvertDType(x, dtypes.Int32) })},
		{"float64", "variable /v is trained in Float64", one(func(s *model.Scope, x *graph.Node) *graph.Node {
			return graph.Add(x, graph.ConvertDType(s.VariableWithValue("v", 1.5).NodeValue(x), dtypes.Float32))
		})},
		{"two outputs", "set Stage.Outputs", func(_ *model.Scope, in []*graph.Node) []*graph.Node { return []*graph.Node{in[0], in[0]} }},
		{"a large constant in a gradient", "a constant of 40 elements", one(func(_ *model.Scope, x *graph.Node) *graph.Node {
			large := make([]float32, 40)
			return graph.IdentityWithCustomGradient(x, func(x, v *graph.Node) *graph.Node {
				c := graph.ConstTensor(x.Graph(), tensors.FromFlatDataAndDimensions(large, 40))
				return graph.Mul(v, graph.ReduceAllSum(c))
			})
		})},
		{"a sort in a gradient", "Sort in a gradient cannot be moved", one(func(_ *model.Scope, x *graph.Node) *graph.Node {
			return graph.IdentityWithCustomGradient(x, func(x, v *graph.Node) *graph.Node { return graph.Sort(v, 0, true) })
		})},
		{"what panics", "layer", one(func(_ *model.Scope, x *graph.Node) *graph.Node { return graph.Reshape(x, 1, 2, 3) })},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := gomlx.New(around(c.layer, []int{4, 6}))
			require.ErrorContains(t, err, c.says)
			if c.name != "what panics" {
				require.ErrorIs(t, err, gomlx.ErrRefused)
			}
			t.Log(fmt.Sprint(err))
		})
	}
}

// TestWrongUses requires errors for uses that would not train what was intended.
func TestWrongUses(t *testing.T) {
	cfg := dropout(config(3))
	cfg.Stages[1].Name = cfg.Stages[0].Name // both would drop the same elements
	_, err := gomlx.New(cfg)
	require.ErrorContains(t, err, `two stages are named "layer0"`)

	cfg = config(2)
	cfg.Loss = func(_, p []*graph.Node) *graph.Node {
		return graph.ReduceAllSum(graph.ConvertDType(p[0], dtypes.Int32))
	}
	_, err = gomlx.New(cfg)
	require.ErrorIs(t, err, gomlx.ErrRefused)
	require.ErrorContains(t, err, "is Int32 and has no gradient")

	cfg = config(2)
	cfg.Loss = func(labels, p []*graph.Node) *graph.Node { return graph.Sub(labels[1], p[0]) }
	_, err = gomlx.New(cfg)
	require.ErrorIs(t, err, gomlx.ErrRefused)
	require.ErrorContains(t, err, `loss "loss" gets 1 labels, ["y"], and 1 predictions; if it uses another one, name it in Config.Labels, or return it from the last stage: runtime error`)

	cfg = config(2)
	m := newModel(t, cfg)
	run := newRunner(t, m.Runner())
	step := runStep(t, run, 2, source(m))
	cfg.Store.GetVariable("/layer0/dense/weights").SetTrainable(false)
	require.ErrorContains(t, step.Update(m.Update), "variable /layer0/dense/weights is trained: false")
	_, err = run.Step(t.Context(), 2, runner.Indexed(func(_ context.Context, e batchctx.Entry[gomlx.T]) error { // other shapes
		x, y := data(e.Index())
		e.Put("x", e.Must(m.Devices[0].Floats(memory.Entry, x[:4], 1, 4)))
		e.Put("y", e.Must(m.Devices[0].Floats(memory.Entry, y[:2], 1, 2)))
		return nil
	}))
	require.ErrorIs(t, err, gomlx.ErrRefused)
}
