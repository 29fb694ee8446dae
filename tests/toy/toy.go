// Package toy is a small model for the suites that cross packages: a chain of
// stages that multiply by a weight, over the handles of an arena, with a squared
// error at the end. It is real enough for every rule of lifetimes to bite: parts
// are read in forward and backward, inputs are saved, gradients accumulate.
package toy

import (
	"context"
	"fmt"
	"math"
	"unsafe"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/loss"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/stages"
)

// T is the handle, S a stage, MB a view: short names for the suites.
type (
	T  = memory.Handle
	S  = stages.Stage[T]
	MB = batchctx.Microbatch[T]
)

// Parts are the parts of an entry: numbers to start from, and targets.
var Parts = []string{"numbers", "targets"}

// Losses is the one objective.
var Losses = []loss.Def{{Name: "error", Reduction: loss.Mean, Objective: true}}

// Model is a chain of stages over one arena.
type Model struct {
	Arena  *memory.Arena
	Stages []S
	Grads  []T // by stage
}

// New returns a chain of n >= 2 stages over a new arena, and a function that
// closes it.
func New(n int) (*Model, error) {
	arena, err := memory.NewArena(memory.ArenaConfig{Capacity: 1 << 30})
	if err != nil {
		return nil, err
	}
	m := &Model{Arena: arena}
	for s := range n {
		grad, err := arena.Alloc(memory.Resident, 4)
		if err != nil {
			return nil, err
		}
		m.Grads = append(m.Grads, grad)
		m.Stages = append(m.Stages, &Stage{Arena: arena, Number: s, Last: s == n-1, Weight: 1 + float32(s)/8, Grad: grad})
	}
	return m, nil
}

// Config returns what a runner needs to train the model.
func (m *Model) Config() runner.Config[T] {
	return runner.Config[T]{
		Stages: m.Stages, Space: m.Arena, Parts: Parts, Losses: Losses, Gradients: Gradients{m.Arena},
	}
}

// Source returns entries of size numbers, keyed by the microbatch; a negative
// size means -size to -size+3 numbers, uneven.
func (m *Model) Source(size int) runner.Source[T] {
	return runner.SourceFunc[T](func(_ context.Context, entry *batchctx.Entry[T]) error {
		n := size
		if size < 0 {
			n = -size + entry.Microbatch()%4
		}
		for part := range Parts {
			h, x, err := Alloc(m.Arena, memory.Entry, n)
			if err != nil {
				return err
			}
			for i := range x {
				x[i] = float32((entry.Microbatch()*7+i*3+part*5)%11) / 4
			}
			if err := entry.Put(part, h); err != nil {
				return err
			}
		}
		return nil
	})
}

// Alloc allocates n numbers and returns a view of them.
func Alloc(arena *memory.Arena, class memory.Class, n int) (T, []float32, error) {
	h, err := arena.Alloc(class, int64(4*n))
	if err != nil {
		return h, nil, err
	}
	x, err := View(arena, h)
	return h, x, err
}

// View returns the numbers behind a handle.
func View(arena *memory.Arena, h T) ([]float32, error) {
	data, err := arena.Data(h)
	if err != nil {
		return nil, err
	}
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(data))), len(data)/4), nil
}

// Stage multiplies by a weight. The first one reads the numbers, the last one
// compares with the targets, which it reads again in its backward.
type Stage struct {
	Arena  *memory.Arena
	Number int
	Last   bool
	Weight float32
	Grad   T
}

// Spec declares one slot, for the input.
func (s *Stage) Spec() stages.Spec {
	spec := stages.Spec{Name: fmt.Sprintf("times%d", s.Number), Slots: 1}
	if s.Number == 0 {
		spec.Reads = append(spec.Reads, stages.Read{Part: Parts[0]})
	} else {
		spec.Inputs = []stages.Port{{Name: "x"}}
	}
	if s.Last {
		spec.Reads = append(spec.Reads, stages.Read{Part: Parts[1], At: batchctx.AtForward | batchctx.AtBackward})
		spec.Losses = []string{Losses[0].Name}
	} else {
		spec.Outputs = []stages.Port{{Name: "x"}}
	}
	return spec
}

// Params is the weight.
func (s *Stage) Params() []batchctx.Use[T] {
	return []batchctx.Use[T]{{Name: s.Spec().Name, Grad: s.Grad}}
}

// Forward saves x and returns weight·x, or records Σ (weight·x - target)²/2.
func (s *Stage) Forward(_ context.Context, mb MB, in, out []T) error {
	h := s.input(mb, in)
	x, err := View(s.Arena, h)
	if err != nil {
		return err
	}
	mb.Save(1, mb.Retain(h))
	if s.Last {
		target, err := s.target(mb)
		if err != nil {
			return err
		}
		var sum float64
		for i := range x {
			d := float64(s.Weight*x[i] - target[i])
			sum += d * d / 2
		}
		mb.Loss(1, sum, float64(len(x)))
		return nil
	}
	y, to, err := Alloc(s.Arena, memory.Activation, len(x))
	if err != nil {
		return err
	}
	for i := range x {
		to[i] = s.Weight * x[i]
	}
	out[0] = y
	return nil
}

// Backward takes x and contributes Σ dy·x to the weight's gradient.
func (s *Stage) Backward(_ context.Context, mb MB, gradOut, gradIn []T) error {
	h := mb.Take(1)
	x, err := View(s.Arena, h)
	if err != nil {
		return err
	}
	scratch, dy, err := s.gradient(mb, x, gradOut)
	if err != nil {
		return err
	}
	if err := s.contribute(mb, x, dy); err != nil {
		return err
	}
	if gradIn != nil {
		to, dx, err := Alloc(s.Arena, memory.ActGrad, len(x))
		if err != nil {
			return err
		}
		for i := range dx {
			dx[i] = s.Weight * dy[i]
		}
		gradIn[0] = to
	}
	if s.Last {
		mb.Release(scratch)
		return nil
	}
	return nil
}

// gradient returns dy; the last stage makes it itself, in a scratch buffer.
func (s *Stage) gradient(mb MB, x []float32, gradOut []T) (scratch T, dy []float32, err error) {
	if !s.Last {
		dy, err = View(s.Arena, gradOut[0])
		return scratch, dy, err
	}
	target, err := s.target(mb)
	if err != nil {
		return scratch, nil, err
	}
	seed := mb.LossSeed(1)
	scratch, dy, err = Alloc(s.Arena, memory.Workspace, len(x))
	if err != nil {
		return scratch, nil, err
	}
	for i := range dy {
		dy[i] = seed * (s.Weight*x[i] - target[i])
	}
	return scratch, dy, nil
}

func (s *Stage) contribute(mb MB, x, dy []float32) error {
	g, write := mb.GradFirst(1)
	if write == batchctx.Skip {
		return nil
	}
	grad, err := View(s.Arena, g)
	if err != nil {
		return err
	}
	if write == batchctx.First {
		grad[0] = 0
	}
	for i := range x {
		grad[0] += x[i] * dy[i]
	}
	return nil
}

func (s *Stage) input(mb MB, in []T) T {
	if s.Number == 0 {
		return mb.Part(1)
	}
	return in[0]
}

func (s *Stage) target(mb MB) ([]float32, error) {
	if s.Number == 0 { // the numbers come first where the stage is the first one, too
		return View(s.Arena, mb.Part(2))
	}
	return View(s.Arena, mb.Part(1))
}

// Gradients does the arithmetic of step end.
type Gradients struct{ Arena *memory.Arena }

// Zero sets g to zero.
func (g Gradients) Zero(h T) error {
	x, err := View(g.Arena, h)
	clear(x)
	return err
}

// Add adds src to dst.
func (g Gradients) Add(dst, src T) error {
	to, err := View(g.Arena, dst)
	if err != nil {
		return err
	}
	from, err := View(g.Arena, src)
	for i := range from {
		to[i] += from[i]
	}
	return err
}

// SumSquares returns Σ x² in float64.
func (g Gradients) SumSquares(h T) (float64, error) {
	x, err := View(g.Arena, h)
	var sum float64
	for _, v := range x {
		sum = math.FMA(float64(v), float64(v), sum)
	}
	return sum, err
}
