// Package toy is a small model for suites that cross packages: a chain of stages over the handles
// of an arena, each of which multiplies by a weight, with a squared error at the end. It exercises
// every rule of lifetimes: parts are read in forward and backward, inputs are saved, gradients
// accumulate.
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

// T is the handle, S a stage, MB a view.
type (
	T  = memory.Handle
	S  = stages.Stage[T]
	MB = batchctx.Microbatch[T]
)

// Parts are the parts of an entry: input numbers, and targets.
var Parts = []string{"numbers", "targets"}

// Losses is the only objective.
var Losses = []loss.Def{{Name: "error", Reduction: loss.Mean, Objective: true}}

// Model is a chain of stages over one arena.
type Model struct {
	Arena  *memory.Arena
	Stages []S
	Grads  []T // by stage
}

// New returns a chain of n >= 2 stages over a new arena, which the caller closes.
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
		m.Stages = append(m.Stages, newStage(arena, s, s == n-1, grad))
	}
	return m, nil
}

// Config returns the runner's configuration for training the model.
func (m *Model) Config() runner.Config[T] {
	return runner.Config[T]{
		Stages: m.Stages, Spaces: runner.Spaces(m.Arena), Losses: Losses, Gradients: Gradients{m.Arena},
	}
}

// Source returns entries of size numbers, keyed by the microbatch; a negative size means -size
// to -size+3 numbers, uneven.
func (m *Model) Source(size int) runner.Source[T] {
	return runner.Indexed(func(_ context.Context, entry batchctx.Entry[T]) error {
		n := size
		if size < 0 {
			n = -size + entry.Index()%4
		}
		for part, name := range Parts {
			h, x, err := Alloc(m.Arena, memory.Entry, n)
			if err != nil {
				return err
			}
			for i := range x {
				x[i] = float32((entry.Index()*7+i*3+part*5)%11) / 4
			}
			entry.Put(name, h)
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

// Stage multiplies by a weight. The first stage reads the numbers; the last one compares with the
// targets, which it reads again in its backward.
type Stage struct {
	stages.Decl[T]
	arena            *memory.Arena
	first, last      bool
	weight           float32
	numbers, targets batchctx.Part
	x                batchctx.Slot
	loss             batchctx.Loss
	param            batchctx.Param
}

func newStage(arena *memory.Arena, number int, last bool, grad T) *Stage {
	s := &Stage{arena: arena, first: number == 0, last: last, weight: 1 + float32(number)/8}
	s.Name = fmt.Sprintf("times%d", number)
	s.x, s.param = s.Slot("x"), s.Param(s.Name, grad)
	if s.first {
		s.numbers = s.Part(Parts[0])
	} else {
		s.Inputs("x")
	}
	if last {
		s.targets = s.Part(Parts[1], batchctx.AtForward, batchctx.AtBackward)
		s.loss = s.Loss(Losses[0].Name)
	} else {
		s.Outputs("x")
	}
	return s
}

// Forward saves x and returns weight·x, or records Σ (weight·x - target)²/2.
func (s *Stage) Forward(_ context.Context, mb MB, in, out []T) error {
	var h T
	if s.first {
		h = mb.Part(s.numbers)
	} else {
		h = in[0]
	}
	x := s.view(mb, h)
	mb.Save(s.x, mb.Retain(h))
	if s.last {
		target := s.view(mb, mb.Part(s.targets))
		var sum float64
		for i := range x {
			d := float64(s.weight*x[i] - target[i])
			sum += d * d / 2
		}
		mb.Loss(s.loss, sum, float64(len(x)))
		return nil
	}
	y, to := s.alloc(mb, memory.Activation, len(x))
	for i := range x {
		to[i] = s.weight * x[i]
	}
	out[0] = y
	return nil
}

// Backward takes x and contributes Σ dy·x to the weight's gradient. The last stage computes dy
// itself, in a scratch buffer.
func (s *Stage) Backward(_ context.Context, mb MB, gradOut, gradIn []T) error {
	x := s.view(mb, mb.Take(s.x))
	var scratch T
	var dy []float32
	if s.last {
		target, seed := s.view(mb, mb.Part(s.targets)), mb.LossSeed(s.loss)
		scratch, dy = s.alloc(mb, memory.Workspace, len(x))
		for i := range dy {
			dy[i] = seed * (s.weight*x[i] - target[i])
		}
	} else {
		dy = s.view(mb, gradOut[0])
	}
	if g, trains := mb.Grad(s.param); trains {
		grad := s.view(mb, g)
		for i := range x {
			grad[0] += x[i] * dy[i]
		}
	}
	if gradIn != nil {
		to, dx := s.alloc(mb, memory.ActGrad, len(x))
		for i := range dx {
			dx[i] = s.weight * dy[i]
		}
		gradIn[0] = to
	}
	if s.last {
		mb.Release(scratch)
	}
	return nil
}

// view and alloc are View and Alloc for a call of the stage, which they end if they fail.
func (s *Stage) view(mb MB, h T) []float32 {
	x, err := View(s.arena, h)
	mb.Check(err)
	return x
}

func (s *Stage) alloc(mb MB, class memory.Class, n int) (T, []float32) {
	h, x, err := Alloc(s.arena, class, n)
	mb.Check(err)
	return h, x
}

// Gradients implements runner.Gradients.
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
