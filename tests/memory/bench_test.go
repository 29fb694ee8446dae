package memory_test

import (
	"context"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/loss"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/memory/memlog"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/schedule/runner/record"
	"github.com/weir-ml/weir/stages"
	"github.com/weir-ml/weir/stages/transformer"
)

// models lists the models to measure: the model of examples/train, and one with the same number of stages that
// compute nothing, which shows the cost of the runner, the books and the log.
var models = []struct {
	name string
	make func(b *testing.B, null bool) (runner.Config[T], runner.Source[T])
}{{"example", trained}, {"empty", empty}}

// trained returns the configuration of the example's model and a source of microbatches of its full
// length.
func trained(b *testing.B, null bool) (runner.Config[T], runner.Source[T]) {
	r := newRig(b, setup{
		schedule: "depth-first", ranks: 1, stages: 4,
		model: transformer.Config{Vocabulary: 256, Width: 48, Layers: 2, Heads: 4, Context: 32, Seed: 1, Untied: true},
	}, null)
	return r.cfg, r.sources(fixed(32))
}

// microbatches is the number of microbatches of a measured step.
const microbatches = 64

// stepper returns a function that runs a step of a model: with dynamic memory ("dynamic"),
// planned, or planned and logged.
func stepper(b *testing.B, model func(*testing.B, bool) (runner.Config[T], runner.Source[T]), mode string) (step func()) {
	cfg, from := model(b, false)
	if mode != "dynamic" {
		dry, source := model(b, true)
		profile, err := record.Stages(b.Context(), dry, record.Shape[T]{Name: "all", Source: source})
		require.NoError(b, err)
		cfg.Memory.Profile = profile
	}
	if mode == "logged" {
		log := memlog.New(io.Discard)
		cfg.Hooks.Microbatch = log.Sample
	}
	r, err := runner.New(cfg)
	require.NoError(b, err)
	return func() {
		result, err := r.Step(b.Context(), microbatches, from)
		if err != nil || result.Planned != (mode != "dynamic") {
			b.Fatal(err)
		}
	}
}

// BenchmarkPairs measures the three modes in alternation, so that other load of the machine affects
// all of them equally. It reports the median and the quartiles of the time of a planned microbatch,
// and of the costs of planning and of the log. Run it with -benchtime 2001x.
func BenchmarkPairs(b *testing.B) {
	for _, model := range models {
		b.Run(model.name, func(b *testing.B) {
			var steps []func()
			for _, mode := range []string{"dynamic", "planned", "logged"} {
				steps = append(steps, stepper(b, model.make, mode))
				steps[len(steps)-1]()
			}
			var all, planning, logging []float64
			for b.Loop() {
				var took [3]float64
				for i, step := range steps {
					start := time.Now()
					step()
					took[i] = float64(time.Since(start).Nanoseconds()) / microbatches
				}
				all, planning, logging = append(all, took[1]), append(planning, took[1]-took[0]), append(logging, took[2]-took[1])
			}
			for name, list := range map[string][]float64{"all": all, "planning": planning, "log": logging} {
				slices.Sort(list)
				for at, quarter := range []string{"q1", "median", "q3"} {
					b.ReportMetric(list[(at+1)*(len(list)-1)/4], name+"-"+quarter+"-ns")
				}
			}
		})
	}
}

// empty returns the configuration of four stages that pass one number on, and a source for them.
func empty(b *testing.B, null bool) (runner.Config[T], runner.Source[T]) {
	r := newRig(b, setup{schedule: "depth-first", ranks: 1, stages: 1, model: tiny}, null)
	dev := r.devs[0]
	grad, err := dev.Alloc(memory.Resident, kernels.Float32, 1)
	require.NoError(b, err)
	wire := []stages.Port{{Name: "x"}}

	first := &stages.Func[T]{
		Declares:   stages.Spec{Name: "first", Outputs: wire, Reads: []stages.Read{{Part: "x"}}},
		Parameters: []batchctx.Use[T]{{Name: "w", Grad: grad}},
		ForwardFunc: func(_ context.Context, mb batchctx.Microbatch[T], _, out []T) error {
			out[0] = mb.Must(dev.Alloc(memory.Activation, kernels.Float32, 1))
			return nil
		},
		BackwardFunc: func(_ context.Context, mb batchctx.Microbatch[T], _, _ []T) error {
			mb.GradFirst(1)
			return nil
		},
	}
	last := &stages.Func[T]{
		Declares: stages.Spec{Name: "last", Inputs: wire, Losses: []string{"loss"}},
		ForwardFunc: func(_ context.Context, mb batchctx.Microbatch[T], _, _ []T) error {
			mb.Loss(1, 1, 1)
			return nil
		},
		BackwardFunc: func(_ context.Context, mb batchctx.Microbatch[T], _, gradIn []T) error {
			mb.LossSeed(1)
			gradIn[0] = mb.Must(dev.Alloc(memory.ActGrad, kernels.Float32, 1))
			return nil
		},
	}
	cfg := runner.Config[T]{
		Stages: []stages.Stage[T]{first, stages.Identity[T]("second", wire...), stages.Identity[T]("third", wire...), last},
		Spaces: runner.Spaces(dev), Gradients: dev,
		Losses: []loss.Def{{Name: "loss", Reduction: loss.Mean, Objective: true}},
	}
	return cfg, runner.Indexed(func(_ context.Context, e batchctx.Entry[T]) error {
		e.Put("x", e.Must(dev.Alloc(memory.Entry, kernels.Float32, 1)))
		return nil
	})
}
