// Mlp is a complete trainer to copy from: a small network on four ranks under 1F1B, with a
// frozen first stage, two losses, planned memory, a memory log, a checkpoint from which it
// resumes, and Ctrl-C. Its tensors are in arenas, so after every microbatch the runner compares the
// live bytes that the arenas count with those that the step counts.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/loss"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/memory/memlog"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/schedule/runner/record"
	"github.com/weir-ml/weir/stages"
	"github.com/weir-ml/weir/trainer/checkpoint"
	"github.com/weir-ml/weir/trainer/safetensors"
)

type (
	T  = kernels.Buffer
	MB = batchctx.Microbatch[T]
)

const (
	width, rows  = 16, 8 // features, and points per microbatch
	microbatches = 128   // per step
	rate, seed   = 2, 7
)

func main() {
	steps := flag.Int("steps", 200, "total number of steps, including those of earlier runs")
	folder := flag.String("run", filepath.Join(os.TempDir(), "weir-mlp"), "folder for the memory log and the checkpoint; a run resumes from an existing checkpoint")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := train(ctx, *steps, *folder, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "mlp:", err)
		os.Exit(1)
	}
}

// shapes are the shapes of the weights, one on each rank.
var shapes = [][2]int{{2, width}, {width, width}, {width, width}, {width, 2}}

// weight is a matrix with its gradient, resident on the device of its stage.
type weight struct {
	kernels.Addressable
	name         string
	in, out      int
	values, grad T
}

func train(ctx context.Context, steps int, folder string, out io.Writer) (err error) {
	var hosts, nulls []kernels.Addressable // by rank
	for range shapes {
		host, err := kernels.NewHost(kernels.HostConfig{})
		if err != nil {
			return err
		}
		null := kernels.NewNull(host) // for a dry run
		defer host.Close()
		defer null.Close()
		hosts, nulls = append(hosts, host), append(nulls, null)
	}
	weights, cfg, err1 := model(hosts)
	_, dry, err2 := model(nulls)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	if cfg.Memory.Profile, err = record.Stages(ctx, dry, record.Shape[T]{Name: "all", Source: runner.Indexed(fill(nulls))}); err != nil {
		return err
	}
	trained := weights[1:] // the first layer is frozen
	step, err := load(folder, trained)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(filepath.Join(folder, "memory.jsonl"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	log := memlog.New(file)
	cfg.Hooks.Microbatch, cfg.FirstStep = log.Sample, step
	run, err := runner.New(cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, run.Close()) }()
	for ; step < int64(steps); step++ {
		result, err := run.Step(ctx, microbatches, runner.Indexed(fill(hosts)))
		if errors.Is(err, context.Canceled) {
			fmt.Fprintf(out, "interrupted in step %d: its memory is released, and the weights are those before it\n", step+1)
			break
		}
		if err != nil {
			return err
		}
		if err := result.Update(descend(trained)); err != nil { // an error if a loss is not a number
			return err
		}
		if (step+1)%50 == 0 {
			fmt.Fprintf(out, "step %d  ring %.4f  radius %.4f  growth per microbatch %v\n",
				step+1, result.Loss("ring"), result.Loss("radius"), result.Growth)
		}
	}
	return errors.Join(save(folder, step, trained), log.Err())
}

// model makes weights and stages on devices: hosts for training, or nulls for a dry run.
func model(devs []kernels.Addressable) (weights []*weight, cfg runner.Config[T], err error) {
	random := rand.New(rand.NewPCG(seed, 0))
	for rank, shape := range shapes {
		values := make([]float32, shape[0]*shape[1])
		for i := range values {
			values[i] = float32(random.NormFloat64() / math.Sqrt(float64(shape[0])))
		}
		w := &weight{Addressable: devs[rank], name: fmt.Sprint("layer", rank), in: shape[0], out: shape[1]}
		var err1, err2 error
		w.values, err1 = w.Floats(memory.Resident, values...)
		w.grad, err2 = w.Floats(memory.Resident, values...) // the runner sets it to zero
		weights, err = append(weights, w), errors.Join(err, err1, err2)
	}
	return weights, runner.Config[T]{
		Stages:   []stages.Stage[T]{features(weights[0]), hidden(weights[1]), hidden(weights[2]), head(weights[3])},
		Spaces:   runner.Spaces(devs...),
		Schedule: "1f1b", Topology: runner.Topology[T]{Capacity: 1},
		Losses: []loss.Def{{Name: "ring", Reduction: loss.Mean, Objective: true}, {Name: "radius", Reduction: loss.Mean, Coefficient: 0.125}},
	}, err
}

// descend returns a function that updates weights; factor is 1 over the total weight of the
// step.
func descend(weights []*weight) func(factor float64) error {
	return func(factor float64) error {
		for _, w := range weights {
			for i, g := range w.Float32s(w.grad) {
				w.Float32s(w.values)[i] -= rate * float32(factor) * g
			}
		}
		return nil
	}
}

// fill returns a function that fills an entry with random points in the plane, each labeled by
// whether it lies in a ring and by its distance from the origin. It makes only the parts that the
// stages of a rank read, on the device of that rank.
func fill(devs []kernels.Addressable) func(context.Context, batchctx.Entry[T]) error {
	return func(_ context.Context, e batchctx.Entry[T]) error {
		random := rand.New(rand.NewPCG(seed, uint64(e.Index())))
		points, labels := make([]float32, 2*rows), make([]float32, 2*rows)
		for i := 0; i < 2*rows; i += 2 {
			x, y := 2*random.Float64()-1, 2*random.Float64()-1
			radius := math.Hypot(x, y)
			points[i], points[i+1], labels[i+1] = float32(x), float32(y), float32(radius)
			if radius > 0.4 && radius < 0.8 {
				labels[i] = 1
			}
		}
		for part, values := range map[string][]float32{"points": points, "labels": labels} {
			if e.Wants(part) {
				e.Put(part, e.Must(devs[e.Rank()].Floats(memory.Entry, values...)))
			}
		}
		return nil
	}
}

// features computes random Fourier features of a point (Rahimi and Recht 2007), which are not trained.
func features(w *weight) stages.Stage[T] {
	d := stages.Decl[T]{Frozen: true}
	d.Outputs("h")
	points := d.Part("points")
	return d.Stage(w.name, func(_ context.Context, mb MB, _, out []T) error {
		out[0] = w.times(mb, memory.Activation, mb.Part(points))
		for i, x := range w.Float32s(out[0]) {
			w.Float32s(out[0])[i] = float32(math.Sin(4*float64(x) + float64(i%width)))
		}
		return nil
	}, nil)
}

// hidden computes tanh(h·w).
func hidden(w *weight) stages.Stage[T] {
	var d stages.Decl[T]
	d.Inputs("h")
	d.Outputs("h")
	input, result, param := d.Slot("input"), d.Slot("result"), d.Param(w.name, w.grad)
	return d.Stage(w.name, func(_ context.Context, mb MB, in, out []T) error {
		out[0] = w.times(mb, memory.Activation, in[0])
		for i, x := range w.Float32s(out[0]) {
			w.Float32s(out[0])[i] = float32(math.Tanh(float64(x)))
		}
		mb.Save(input, mb.Retain(in[0]))
		mb.Save(result, mb.Retain(out[0]))
		return nil
	}, func(_ context.Context, mb MB, gradOut, gradIn []T) error {
		y := w.Float32s(mb.Take(result))
		dy := mb.Must(w.Floats(memory.Workspace, w.Float32s(gradOut[0])...))
		for i, g := range w.Float32s(dy) {
			w.Float32s(dy)[i] = g * (1 - y[i]*y[i])
		}
		w.backward(mb, param, mb.Take(input), dy, gradIn)
		mb.Release(dy)
		return nil
	})
}

// head predicts a logit and a radius, and records a loss for each.
func head(w *weight) stages.Stage[T] {
	var d stages.Decl[T]
	d.Inputs("h")
	labels := d.Part("labels")
	input, slopes, param := d.Slot("input"), d.Slot("slopes"), d.Param(w.name, w.grad)
	ring, radius := d.Loss("ring"), d.Loss("radius")
	return d.Stage(w.name, func(_ context.Context, mb MB, in, _ []T) error {
		y := w.times(mb, memory.Saved, in[0]) // the predictions, and then the slopes of the losses
		v, want := w.Float32s(y), w.Float32s(mb.Part(labels))
		var entropy, square float64
		for i := 0; i < len(v); i += 2 {
			p, miss := 1/(1+math.Exp(-float64(v[i]))), float64(v[i+1]-want[i+1])
			entropy -= math.Log(math.Abs(p + float64(want[i]) - 1))
			square += miss * miss / 2
			v[i], v[i+1] = float32(p)-want[i], float32(miss)
		}
		mb.Loss(ring, entropy, rows) // a sum and its weight, never a tensor
		mb.Loss(radius, square, rows)
		mb.Save(slopes, y)
		mb.Save(input, mb.Retain(in[0]))
		return nil
	}, func(_ context.Context, mb MB, _, gradIn []T) error {
		dy := mb.Take(slopes)
		for i, v := 0, w.Float32s(dy); i < len(v); i += 2 {
			v[i] *= mb.LossSeed(ring)
			v[i+1] *= mb.LossSeed(radius) // with its coefficient
		}
		w.backward(mb, param, mb.Take(input), dy, gradIn)
		return nil
	})
}

// times returns x·w in a new buffer.
func (w *weight) times(mb MB, class memory.Class, x T) T {
	y := mb.Must(w.Alloc(class, kernels.Float32, rows*w.out))
	mb.Check(w.MatMul(kernels.MatMul{A: x, B: w.values, C: y, M: rows, N: w.out, K: w.in}))
	return y
}

// backward adds to the gradient of w, and returns the gradient of x in gradIn if it is needed.
func (w *weight) backward(mb MB, param batchctx.Param, x, dy T, gradIn []T) {
	if g, trains := mb.Grad(param); trains { // zero at first
		mb.Check(w.MatMul(kernels.MatMul{A: x, B: dy, C: g, M: w.in, N: w.out, K: rows, TransA: true, Accumulate: true}))
	}
	if gradIn != nil { // nil if the previous stage is frozen
		gradIn[0] = mb.Must(w.Alloc(memory.ActGrad, kernels.Float32, rows*w.in))
		mb.Check(w.MatMul(kernels.MatMul{A: dy, B: w.values, C: gradIn[0], M: rows, N: w.in, K: w.out, TransB: true}))
	}
}

// save writes a checkpoint atomically.
func save(folder string, step int64, weights []*weight) error {
	var tensors []safetensors.Tensor
	for _, w := range weights {
		tensors = append(tensors, safetensors.Of(w.name, []int{w.in, w.out}, w.Float32s(w.values)))
	}
	return checkpoint.Save(folder, checkpoint.State{Step: step, Seed: seed}, tensors...)
}

// load reads the newest complete checkpoint and returns its number of steps, or 0 if there is none.
func load(folder string, weights []*weight) (int64, error) {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return 0, err
	}
	c, _, err := checkpoint.Newest(folder)
	if errors.Is(err, checkpoint.ErrNone) {
		return 0, nil
	} else if err != nil {
		return 0, err
	}
	for _, w := range weights {
		err = errors.Join(err, checkpoint.Read(c, w.name, []int{w.in, w.out}, w.Float32s(w.values)))
	}
	return c.Step, errors.Join(err, c.Close())
}
