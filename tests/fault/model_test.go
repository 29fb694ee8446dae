package fault_test

import (
	"context"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/stages"
)

type (
	tensor = memory.Handle
	view   = batchctx.Microbatch[tensor]
	stage  = stages.Stage[tensor]
)

// size is the number of weights of every parameter; element i of an activation is multiplied by
// weight i mod size.
const size = 3

// weight is one parameter with an accumulator for each of its uses.
type weight struct {
	name   string
	values []float32
	grads  []tensor
}

// model makes stages over a pool. Their numbers have no meaning, but depend on every call that can
// fail.
type model struct {
	pool    *pool
	weights []*weight
}

// use declares another use of a parameter.
func (m *model) use(name string) (batchctx.Use[tensor], *weight) {
	h, _, err := m.pool.alloc(memory.Resident, size)
	if err != nil {
		panic(err) // only while a test is set up
	}
	for _, w := range m.weights {
		if w.name == name {
			w.grads = append(w.grads, h)
			return batchctx.Use[tensor]{Name: name, Grad: h, Tied: true}, w
		}
	}
	w := &weight{name: name, grads: []tensor{h}}
	for i := range size {
		w.values = append(w.values, 0.5+0.125*float32(i)+0.0625*float32(len(m.weights)))
	}
	m.weights = append(m.weights, w)
	return batchctx.Use[tensor]{Name: name, Grad: h}, w
}

// view and alloc call the pool's methods in a call of a stage, and end the call if they fail.
func (m *model) view(mb view, h tensor) []float32 {
	x, err := m.pool.view(h)
	mb.Check(err)
	return x
}

func (m *model) alloc(mb view, class memory.Class, n int) (tensor, []float32) {
	h, x, err := m.pool.alloc(class, n)
	mb.Check(err)
	return h, x
}

// contribute adds to the gradient of the stage's first parameter.
func (m *model) contribute(mb view, term func(i int) float32, n int) {
	h, write := mb.GradFirst(1)
	if write == batchctx.Skip {
		return
	}
	grad := m.view(mb, h)
	if write == batchctx.First {
		clear(grad)
	}
	for i := range n {
		grad[i%size] += term(i)
	}
}

// noise is a keyed draw in [0, 1).
func noise(mb view, element int) float32 {
	x := mb.Seed() + uint64(mb.Step())*0x9e3779b97f4a7c15 + uint64(mb.Index())*0xbf58476d1ce4e5b9 + uint64(element)*0x94d049bb133111eb
	x ^= x >> 31
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 29
	return float32(x>>40) / (1 << 24)
}

var ports = []stages.Port{{Name: "x"}, {Name: "mask", NoGrad: true}}

// parts are the parts of an entry.
var parts = []string{"tokens", "mask", "labels"}

// embed returns x = w·token + noise, and the mask unchanged.
func (m *model) embed(name string) stage {
	param, w := m.use("table")
	return watch(m.pool.events, &stages.Func[tensor]{
		Declares: stages.Spec{
			Name: name, Outputs: ports,
			Reads: []stages.Read{{Part: "tokens", At: batchctx.AtForward | batchctx.AtWeight}, {Part: "mask"}},
		},
		Parameters: []batchctx.Use[tensor]{param},
		ForwardFunc: func(_ context.Context, mb view, _, out []tensor) error {
			tokens := m.view(mb, mb.Part(1))
			out[1] = mb.Retain(mb.Part(2))
			var x []float32
			out[0], x = m.alloc(mb, memory.Activation, len(tokens))
			for i := range x {
				x[i] = w.values[i%size]*tokens[i] + noise(mb, i)/4
			}
			return nil
		},
		BackwardFunc: func(_ context.Context, mb view, gradOut, _ []tensor) error {
			tokens, g := m.view(mb, mb.Part(1)), m.view(mb, gradOut[0])
			m.contribute(mb, func(i int) float32 { return g[i] * tokens[i] }, len(g))
			return nil
		},
	})
}

// mix returns y = w·x·(1 + mask·x/8), computed in a workspace, and the mask unchanged. It can split
// its backward.
type mix struct {
	*model
	name   string
	param  batchctx.Use[tensor]
	weight *weight
}

func (m *model) mix(name, parameter string) stage {
	param, w := m.use(parameter)
	return watch(m.pool.events, &mix{m, name, param, w})
}

// Slots of mix: for the tensors that its forward saves, and the one that I passes to W.
const (
	slotX batchctx.Slot = iota + 1
	slotMask
	slotCarry
)

func (s *mix) Spec() stages.Spec {
	return stages.Spec{Name: s.name, Inputs: ports, Outputs: ports, Slots: []string{"x", "mask", "carry"}}
}

func (s *mix) Params() []batchctx.Use[tensor] { return []batchctx.Use[tensor]{s.param} }

func (s *mix) Forward(_ context.Context, mb view, in, out []tensor) error {
	x, mask := s.view(mb, in[0]), s.view(mb, in[1])
	for slot, h := range in {
		save(mb, slotX+batchctx.Slot(slot), batchctx.ByBackward, mb.Retain(h))
	}
	h, factor := s.alloc(mb, memory.Workspace, len(x))
	defer mb.Release(h) // even after a panic, for a space that cannot reclaim
	for i := range x {
		factor[i] = 1 + mask[i]*x[i]/8
	}
	out[1] = mb.Retain(in[1])
	var y []float32
	out[0], y = s.alloc(mb, memory.Activation, len(x))
	for i := range y {
		y[i] = s.weight.values[i%size] * x[i] * factor[i]
	}
	return nil
}

// save saves h, or releases it if saving fails.
func save(mb view, slot batchctx.Slot, by batchctx.Consumer, h tensor) {
	saved := false
	defer func() {
		if !saved {
			mb.ReleaseAfterFailure(h, false)
		}
	}()
	mb.SaveFor(by, slot, h)
	saved = true
}

func (s *mix) Backward(_ context.Context, mb view, gradOut, gradIn []tensor) error {
	g, x, mask := s.taken(mb, gradOut)
	s.input(mb, g, x, mask, gradIn)
	s.contribute(mb, func(i int) float32 { return g[i] * x[i] * (1 + mask[i]*x[i]/8) }, len(g))
	return nil
}

func (s *mix) BackwardInput(_ context.Context, mb view, gradOut, gradIn []tensor) error {
	g, x, mask := s.taken(mb, gradOut)
	h, carry := s.alloc(mb, memory.Carry, len(g))
	for i := range carry {
		carry[i] = g[i] * x[i] * (1 + mask[i]*x[i]/8)
	}
	save(mb, slotCarry, batchctx.ByWeight, h)
	s.input(mb, g, x, mask, gradIn)
	return nil
}

func (s *mix) BackwardWeight(_ context.Context, mb view) error {
	carry := s.view(mb, mb.Take(slotCarry))
	s.contribute(mb, func(i int) float32 { return carry[i] }, len(carry))
	return nil
}

func (s *mix) taken(mb view, gradOut []tensor) (g, x, mask []float32) {
	return s.view(mb, gradOut[0]), s.view(mb, mb.Take(slotX)), s.view(mb, mb.Take(slotMask))
}

func (s *mix) input(mb view, g, x, mask []float32, gradIn []tensor) {
	if gradIn == nil {
		return
	}
	h, dx := s.alloc(mb, memory.ActGrad, len(g))
	gradIn[0] = h
	for i := range dx {
		dx[i] = g[i] * s.weight.values[i%size] * (1 + mask[i]*x[i]/4)
	}
}

// head records Σ mask·(w·x - label)² with the weight Σ mask, and starts the backward. It
// shares the first stage's parameter.
func (m *model) head() stage {
	param, w := m.use("table")
	return watch(m.pool.events, &stages.Func[tensor]{
		Declares: stages.Spec{
			Name: "head", Inputs: ports, Slots: []string{"x"}, Losses: []string{"squares"},
			Reads: []stages.Read{
				{Part: "labels", At: batchctx.AtForward | batchctx.AtBackward},
				{Part: "mask", At: batchctx.AtBackward},
			},
			Outputs: []stages.Port{{Name: "y"}},
		},
		Parameters: []batchctx.Use[tensor]{param},
		ForwardFunc: func(_ context.Context, mb view, in, out []tensor) error {
			labels, x, mask := m.view(mb, mb.Part(1)), m.view(mb, in[0]), m.view(mb, in[1])
			var y []float32
			out[0], y = m.alloc(mb, memory.Activation, len(x))
			sum, total := 0.0, 0.0
			for i := range x {
				y[i] = w.values[i%size]*x[i] - labels[i]
				sum += float64(mask[i] * y[i] * y[i])
				total += float64(mask[i])
			}
			mb.Loss(1, sum, total)
			save(mb, 1, batchctx.ByBackward, mb.Retain(in[0]))
			return nil
		},
		BackwardFunc: func(_ context.Context, mb view, _, gradIn []tensor) error {
			seed := mb.LossSeed(1)
			labels, mask, x := m.view(mb, mb.Part(1)), m.view(mb, mb.Part(2)), m.view(mb, mb.Take(1))
			h, dy := m.alloc(mb, memory.Workspace, len(x))
			defer mb.Release(h)
			for i := range dy {
				dy[i] = 2 * seed * mask[i] * (w.values[i%size]*x[i] - labels[i])
			}
			if gradIn != nil {
				var dx []float32
				gradIn[0], dx = m.alloc(mb, memory.ActGrad, len(x))
				for i := range dx {
					dx[i] = dy[i] * w.values[i%size]
				}
			}
			m.contribute(mb, func(i int) float32 { return dy[i] * x[i] }, len(x))
			mb.ReleaseSaved(1)
			return nil
		},
	})
}
