package transformer

import (
	"fmt"
	"math"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
)

// Parameter is one parameter of a model. Its buffers are float32, of class
// Resident, and the model's: they end with Model.Close.
type Parameter struct {
	Name   string
	Shape  []int
	Weight kernels.Buffer
	// Grad is the accumulator of the parameter's first use. At step end the runner
	// adds those of the other uses to it.
	Grad kernels.Buffer
	M, V kernels.Buffer // AdamW's moments, 0 at the start
	// Decay says that weight decay applies: to matrices and tables, not to norms
	// and biases.
	Decay bool
	// Frozen keeps Update away from the parameter. Set it for the parameters of
	// stages wrapped in stages.Freeze, whose gradients nobody writes. A tied table
	// must be frozen in both its uses or in neither.
	Frozen bool
}

// standardDeviation is GPT-2's, of every matrix and table at the start.
const standardDeviation = 0.02

// builder makes the model's buffers. The first error stays, and what follows it
// does nothing.
type builder struct {
	dev        kernels.Compute
	cfg        Config
	residual   float32 // standard deviation of a projection onto the residual stream
	ones       []float32
	parameters []*Parameter
	buffers    []kernels.Buffer
	err        error
}

func newBuilder(dev kernels.Compute, cfg Config) *builder {
	b := &builder{
		dev: dev, cfg: cfg,
		residual: float32(standardDeviation / math.Sqrt(2*float64(cfg.Layers))),
		ones:     make([]float32, cfg.Width),
	}
	for i := range b.ones {
		b.ones[i] = 1
	}
	return b
}

// do keeps the first error.
func (b *builder) do(err error) {
	if b.err == nil {
		b.err = err
	}
}

// zeros returns a buffer of n zeros.
func (b *builder) zeros(n int) kernels.Buffer {
	if b.err != nil {
		return kernels.Buffer{}
	}
	buffer, err := b.dev.Alloc(memory.Resident, kernels.Float32, n)
	if err != nil {
		b.do(err)
		return kernels.Buffer{}
	}
	b.buffers = append(b.buffers, buffer)
	b.do(b.dev.Zero(buffer))
	return buffer
}

// parameter adds a parameter of zeros.
func (b *builder) parameter(name string, shape ...int) *Parameter {
	n := 1
	for _, size := range shape {
		n *= size
	}
	p := &Parameter{Name: name, Shape: shape}
	for _, buffer := range []*kernels.Buffer{&p.Weight, &p.Grad, &p.M, &p.V} {
		*buffer = b.zeros(n)
	}
	if b.err != nil {
		b.err = fmt.Errorf("transformer: parameter %q of %d elements: %w", name, n, b.err)
	}
	b.parameters = append(b.parameters, p)
	return p
}

// matrix adds a parameter of normal draws that are keyed by its name.
func (b *builder) matrix(name string, deviation float32, rows, cols int) *Parameter {
	p := b.parameter(name, rows, cols)
	p.Decay = true
	if b.err == nil {
		b.do(b.dev.Normal(p.Weight, deviation, kernels.Key{Seed: b.cfg.Seed, Op: kernels.OpKey(name)}))
	}
	return p
}

// norm adds the gain and the bias of a layer norm to a stage.
func (b *builder) norm(s *stage, name string) norm {
	gain, bias := b.parameter(name+".weight", b.cfg.Width), b.parameter(name+".bias", b.cfg.Width)
	if b.err == nil {
		b.do(b.dev.WriteFloat32(gain.Weight, b.ones))
	}
	return norm{gain: gain.Weight, bias: bias.Weight, gainUse: s.use(gain, gain.Grad), biasUse: s.use(bias, bias.Grad)}
}

// linear adds the matrix and the bias of a linear layer to a stage.
func (b *builder) linear(s *stage, name string, deviation float32, in, out int) linear {
	weight, bias := b.matrix(name+".weight", deviation, in, out), b.parameter(name+".bias", out)
	return linear{
		weight: weight.Weight, bias: bias.Weight, in: in, out: out,
		weightUse: s.use(weight, weight.Grad), biasUse: s.use(bias, bias.Grad),
	}
}

// release ends every buffer, the last one first, and returns the first error.
func release(dev kernels.Device, buffers []kernels.Buffer) error {
	var first error
	for i := len(buffers) - 1; i >= 0; i-- {
		if _, err := dev.Release(buffers[i]); first == nil {
			first = err
		}
	}
	return first
}

// use declares a use of a parameter by the stage and returns its number.
func (s *stage) use(p *Parameter, grad kernels.Buffer) int {
	s.params = append(s.params, batchctx.Param[kernels.Buffer]{Name: p.Name, Grad: grad})
	return len(s.params) - 1
}
