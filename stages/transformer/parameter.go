package transformer

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"math"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/fp8"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule/runner"
)

// Parameter is a parameter of a model: its name, and a copy of it on every device that uses it,
// all with the same weight and the same moments.
type Parameter struct {
	Name  string
	Shape []int
	Copy  // the copy on the device of the parameter's first use
	// Others holds the copies on other devices, if stages on several devices use the parameter.
	// Code that writes a weight or a moment must write every copy (see All).
	Others []Copy
	// Decay reports whether weight decay applies: to matrices and tables, not to norms and
	// biases.
	Decay bool
	// Frozen excludes the parameter from Update. Set it for the parameters of stages wrapped in
	// stages.Freeze, whose gradients are not written. A tied table must be frozen in both of its
	// uses or in neither.
	Frozen bool
}

// Copy holds the buffers of a parameter on one device. They are float32, of class Resident, and
// owned by the model; weights, gradients and moments are in separate scopes ([memory.Scope]).
// Model.Close releases them. The buffers that Config.Shard selects contain only the elements that
// the replica owns, and are the zero Buffer if it owns none.
type Copy struct {
	Device  kernels.Compute
	Replica int
	// First and Count delimit the elements that the replica owns: all of them if there is only
	// one replica.
	First, Count int
	Weight       kernels.Buffer
	// Grad is the accumulator of the first use on this device. At the end of a step the runner
	// sets it to the sum of the accumulators of all uses.
	Grad kernels.Buffer
	M, V kernels.Buffer // AdamW's moments, 0 at the start
}

// Own returns a buffer of the copy, limited to the elements that the replica owns. It is not
// retained.
func (c *Copy) Own(b kernels.Buffer) (kernels.Buffer, error) {
	if b.N == c.Count {
		return b, nil
	}
	dev, ok := c.Device.(runner.Sharded[kernels.Buffer])
	if !ok {
		return b, fmt.Errorf("transformer: %w: a %T cannot be shared by replicas", errors.ErrUnsupported, c.Device)
	}
	return dev.Slice(b, c.First, c.Count)
}

// All iterates over the copies of the parameter, beginning with the embedded Copy.
func (p *Parameter) All() iter.Seq[Copy] {
	return func(yield func(Copy) bool) {
		if !yield(p.Copy) {
			return
		}
		for _, c := range p.Others {
			if !yield(c) {
				return
			}
		}
	}
}

// standardDeviation is the standard deviation of initial weights, as in GPT-2; projections onto
// the residual stream have a smaller one.
const standardDeviation = 0.02

// builder makes the parts of a model, and their buffers. It keeps the first error, and does
// nothing after it.
type builder struct {
	cfg        Config
	keep       *int64          // Model.KeepLogits
	dev        kernels.Compute // the device of the stage that is being made
	replica    int             // the replica of that stage
	residual   float32         // standard deviation of a projection onto the residual stream
	ones       []float32
	parameters []*Parameter
	byName     map[string]*Parameter
	packed     *func(microbatch int) []Sequence
	used       map[string]bool // the parameters that earlier stages of the same copy of the model use
	buffers    []owned
	slots      []fp8.Slot     // all tensors that are quantized
	bySlot     map[string]int // by name: the number of the slot
	byDevice   []*scales
	measuring  []*lines // the lines of every block in FP8
	err        error
}

// owned is a buffer that the model owns.
type owned struct {
	dev    kernels.Device
	buffer kernels.Buffer
}

func newBuilder(cfg Config) *builder {
	b := &builder{
		cfg:      cfg,
		residual: float32(standardDeviation / math.Sqrt(2*float64(cfg.Layers))),
		ones:     make([]float32, cfg.Width),
		byName:   map[string]*Parameter{},
		bySlot:   map[string]int{},
	}
	for i := range b.ones {
		b.ones[i] = 1
	}
	return b
}

// zeros returns a buffer of n zeros in a scope.
func (b *builder) zeros(scope memory.Scope, n int) kernels.Buffer {
	if b.err != nil || n == 0 {
		return kernels.Buffer{}
	}
	buffer, err := b.dev.AllocIn(scope, kernels.Float32, n)
	if err != nil {
		b.err = err
		return kernels.Buffer{}
	}
	b.buffers = append(b.buffers, owned{b.dev, buffer})
	b.err = b.dev.Zero(buffer)
	return buffer
}

// use adds a use of a parameter to a stage, and returns its number in the stage. The first use
// makes the parameter; the first use on a device makes a copy on that device, whose weight is
// zero unless fill sets its elements. Every use has its own accumulator.
func (b *builder) use(s *stage, name string, fill func(weight kernels.Buffer) error, shape ...int) batchctx.Param {
	if b.err != nil {
		return 0
	}
	p, n := b.parameter(name, shape)
	c, first := b.copyOf(p, n)
	use := batchctx.Use[kernels.Buffer]{Name: name, Grad: c.Grad, Weight: c.Weight, Tied: b.used[name]}
	b.used[name] = true
	if c.Count < n && b.cfg.Shard >= 2 {
		use.Elements = n
	}
	if !first {
		use.Grad = b.zeros(memory.Gradients, b.sharded(2, n, c.Count))
	} else if b.err == nil && fill != nil {
		b.err = b.fill(c, n, fill)
	}
	if b.err != nil {
		b.err = fmt.Errorf("transformer: parameter %q of %d elements: %w", name, n, b.err)
	}
	return s.Use(use)
}

// sharded returns the number of elements of a buffer: own if Config.Shard is at least level, so
// that the buffer is a shard, and whole otherwise.
func (b *builder) sharded(level, whole, own int) int {
	if b.cfg.Shard >= level {
		return own
	}
	return whole
}

// fill fills the weight of a copy. Draws are keyed by an element's position in the whole
// parameter, so a shard is copied from a whole weight.
func (b *builder) fill(c Copy, n int, fill func(weight kernels.Buffer) error) error {
	if c.Weight.N == n {
		return fill(c.Weight)
	}
	if c.Count == 0 {
		return nil
	}
	whole, err := b.dev.AllocIn(memory.Weights, kernels.Float32, n)
	if err != nil {
		return err
	}
	own := kernels.Buffer{}
	if err = fill(whole); err == nil {
		own, err = c.Own(whole)
	}
	if err == nil {
		err = b.dev.Copy(c.Weight, own)
	}
	_, released := b.dev.Release(whole)
	return cmp.Or(err, released)
}

// parameter returns the parameter with the given name, and its number of elements.
func (b *builder) parameter(name string, shape []int) (p *Parameter, n int) {
	n = 1
	for _, size := range shape {
		n *= size
	}
	p, known := b.byName[name]
	if !known {
		p = &Parameter{Name: name, Shape: shape, Decay: len(shape) > 1}
		b.byName[name] = p
		b.parameters = append(b.parameters, p)
	}
	return p, n
}

// copyOf returns the copy, on the builder's device, of a parameter of n elements, and whether
// that copy is new.
func (b *builder) copyOf(p *Parameter, n int) (c Copy, first bool) {
	if p.Device != nil {
		for c := range p.All() {
			if c.Device == b.dev {
				return c, false
			}
		}
	}
	c = Copy{Device: b.dev, Replica: b.replica, Count: n}
	if count := b.cfg.replicas(); count > 1 {
		if dev, ok := b.dev.(runner.Sharded[kernels.Buffer]); ok {
			c.First, c.Count = runner.ShardRange(dev, p.Name, n, b.replica, count)
		} else if b.err == nil {
			b.err = fmt.Errorf("%w: a %T cannot be shared by replicas", errors.ErrUnsupported, b.dev)
		}
	}
	c.Weight = b.zeros(memory.Weights, b.sharded(3, n, c.Count))
	c.Grad = b.zeros(memory.Gradients, b.sharded(2, n, c.Count))
	c.M = b.zeros(memory.Optimizer, b.sharded(1, n, c.Count))
	c.V = b.zeros(memory.Optimizer, b.sharded(1, n, c.Count))
	if p.Device == nil {
		p.Copy = c
	} else {
		p.Others = append(p.Others, c)
	}
	return c, true
}

// matrix adds a use of a matrix whose initial elements are normal draws keyed by its name.
func (b *builder) matrix(s *stage, name string, deviation float32, rows, cols int) batchctx.Param {
	return b.use(s, name, func(weight kernels.Buffer) error {
		return b.dev.Normal(weight, deviation, kernels.Key{Seed: b.cfg.Seed, Op: kernels.OpKey(name)})
	}, rows, cols)
}

// norm adds the gain and the bias of a layer norm to a stage.
func (b *builder) norm(s *stage, name string) (n norm) {
	ones := func(weight kernels.Buffer) error { return b.dev.WriteFloat32(weight, b.ones) }
	n.gainUse = b.use(s, name+".weight", ones, b.cfg.Width)
	n.biasUse = b.use(s, name+".bias", nil, b.cfg.Width)
	return n
}

// linear adds the matrix and the bias of a linear layer to a stage.
func (b *builder) linear(s *stage, name string, deviation float32, in, out int) *linear {
	l := &linear{in: in, out: out}
	l.weightUse = b.matrix(s, name+".weight", deviation, in, out)
	l.biasUse = b.use(s, name+".bias", nil, out)
	return l
}

// release releases every buffer in reverse order, and returns the first error.
func release(buffers []owned) error {
	var first error
	for i := len(buffers) - 1; i >= 0; i-- {
		if _, err := buffers[i].dev.Release(buffers[i].buffer); first == nil {
			first = err
		}
	}
	return first
}
