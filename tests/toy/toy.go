// Package toy is a small model for suites that cross packages: a chain of stages, each of which
// multiplies by a weight, with a squared error at the end. It exercises every rule of lifetimes:
// parts are read in forward and backward, inputs are saved, gradients accumulate.
package toy

import (
	"context"
	"fmt"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/stages"
)

// T is the handle, S a stage, MB a view.
type (
	T  = kernels.Buffer
	S  = stages.Stage[T]
	MB = batchctx.Microbatch[T]
)

// Parts are the parts of an entry: input numbers, and targets.
var Parts = []string{"numbers", "targets"}

// Model is a chain of stages on one device.
type Model struct {
	Device *kernels.Host
	Stages []S
}

// New returns a chain of n >= 2 stages on a new device, which the caller closes.
func New(n int) (*Model, error) {
	dev, err := kernels.NewHost(kernels.HostConfig{Capacity: 1 << 30})
	if err != nil {
		return nil, err
	}
	m := &Model{Device: dev}
	for s := range n {
		grad, err := dev.Floats(memory.Resident, 0)
		if err != nil {
			return nil, err
		}
		m.Stages = append(m.Stages, stage(dev, s, s == n-1, grad))
	}
	return m, nil
}

// Config returns the runner's configuration for training the model.
func (m *Model) Config() runner.Config[T] {
	return runner.Config[T]{Stages: m.Stages, Spaces: runner.Spaces(m.Device)}
}

// Source returns entries of size numbers, keyed by the microbatch. If size is negative, entries have
// between -size and -size+3 numbers.
func (m *Model) Source(size int) runner.Source[T] {
	return runner.Indexed(func(_ context.Context, entry batchctx.Entry[T]) error {
		n := size
		if size < 0 {
			n = -size + entry.Index()%4
		}
		for part, name := range Parts {
			b := entry.Must(m.Device.Alloc(memory.Entry, kernels.Float32, n))
			x := m.Device.Float32s(b)
			for i := range x {
				x[i] = float32((entry.Index()*7+i*3+part*5)%11) / 4
			}
			entry.Put(name, b)
		}
		return nil
	})
}

// stage returns a stage that multiplies by a weight. The first stage reads the numbers; the last one
// compares with the targets, which it reads again in its backward.
func stage(dev *kernels.Host, number int, last bool, grad T) S {
	name, weight := fmt.Sprintf("times%d", number), 1+float32(number)/8
	var d stages.Decl[T]
	saved, param := d.Slot("x"), d.Param(name, grad)
	var numbers, targets batchctx.Part
	var square batchctx.Loss
	if number == 0 {
		numbers = d.Part(Parts[0])
	} else {
		d.Inputs("x")
	}
	if last {
		targets = d.Part(Parts[1], batchctx.AtForward, batchctx.AtBackward)
		square = d.Loss("error")
	} else {
		d.Outputs("x")
	}
	alloc := func(mb MB, class memory.Class, n int) (T, []float32) {
		b := mb.Must(dev.Alloc(class, kernels.Float32, n))
		return b, dev.Float32s(b)
	}
	// It saves x and returns weight·x, or records Σ (weight·x - target)²/2.
	forward := func(_ context.Context, mb MB, in, out []T) error {
		var b T
		if number == 0 {
			b = mb.Part(numbers)
		} else {
			b = in[0]
		}
		x := dev.Float32s(b)
		mb.Save(saved, mb.Retain(b))
		if last {
			target := dev.Float32s(mb.Part(targets))
			var sum float64
			for i := range x {
				miss := float64(weight*x[i] - target[i])
				sum += miss * miss / 2
			}
			mb.Loss(square, sum, float64(len(x)))
			return nil
		}
		y, to := alloc(mb, memory.Activation, len(x))
		for i := range x {
			to[i] = weight * x[i]
		}
		out[0] = y
		return nil
	}
	// It takes x and contributes Σ dy·x to the weight's gradient. The last stage computes dy itself,
	// in a scratch buffer.
	backward := func(_ context.Context, mb MB, gradOut, gradIn []T) error {
		x := dev.Float32s(mb.Take(saved))
		var scratch T
		var dy []float32
		if last {
			target, seed := dev.Float32s(mb.Part(targets)), mb.LossSeed(square)
			scratch, dy = alloc(mb, memory.Workspace, len(x))
			for i := range dy {
				dy[i] = seed * (weight*x[i] - target[i])
			}
		} else {
			dy = dev.Float32s(gradOut[0])
		}
		if g, trains := mb.Grad(param); trains {
			sum := dev.Float32s(g)
			for i := range x {
				sum[0] += x[i] * dy[i]
			}
		}
		if gradIn != nil {
			b, dx := alloc(mb, memory.ActGrad, len(x))
			for i := range dx {
				dx[i] = weight * dy[i]
			}
			gradIn[0] = b
		}
		if last {
			mb.Release(scratch)
		}
		return nil
	}
	return d.Stage(name, forward, backward)
}
