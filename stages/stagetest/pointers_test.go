package stagetest_test

import (
	"context"
	"encoding/binary"
	"math"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/stages"
	"github.com/weir-ml/weir/stages/stagetest"
)

// tensor is memory that belongs to the garbage collector.
type tensor struct {
	x     []float32
	class memory.Class
}

// square is y = w·x², the first stage of a model: x is an entry part. It saves x and y.
type square struct {
	weight float32
	grad   *tensor
	broken string
	kept   *tensor
	closed []func() float32
}

func (s *square) Spec() stages.Spec {
	return stages.Spec{Name: "square", Reads: []stages.Read{{Part: "x"}}, Outputs: []stages.Port{{Name: "y"}}, Slots: []string{"x", "carry"}}
}

func (s *square) Params() []batchctx.Use[*tensor] {
	return []batchctx.Use[*tensor]{{Name: "w", Grad: s.grad}}
}

func (s *square) Forward(_ context.Context, mb batchctx.Microbatch[*tensor], _, out []*tensor) error {
	x := mb.Part(1)
	y := &tensor{x: make([]float32, len(x.x)), class: memory.Activation}
	for i, v := range x.x {
		y.x[i] = s.weight * v * v
	}
	switch s.broken {
	case "reachable part":
		s.kept = x
	case "reachable closure":
		s.closed = append(s.closed, func() float32 { return y.x[0] })
	case "keeps input": // a part, by a reference
		s.kept = mb.Retain(x)
	}
	out[0] = y
	mb.Save(1, mb.Retain(x))
	mb.Save(2, mb.Retain(y))
	return nil
}

func (s *square) Backward(_ context.Context, mb batchctx.Microbatch[*tensor], gradOut, _ []*tensor) error {
	mb.Take(1) // only to make it reachable
	y := mb.Take(2)
	g, write := mb.GradFirst(1)
	if write == batchctx.Skip {
		return nil
	}
	if write == batchctx.First {
		g.x[0] = 0
	}
	for i, v := range y.x {
		g.x[0] += gradOut[0].x[i] * v / s.weight
	}
	return nil
}

type pointerGradients struct{}

func (pointerGradients) Zero(g *tensor) error { clear(g.x); return nil }

func (pointerGradients) Add(dst, src *tensor) error {
	for i, v := range src.x {
		dst.x[i] += v
	}
	return nil
}

func (pointerGradients) SumSquares(g *tensor) (sum float64, err error) {
	for _, v := range g.x {
		sum += float64(v) * float64(v)
	}
	return sum, nil
}

func pointerConfig(broken string) stagetest.Config[*tensor] {
	return stagetest.Config[*tensor]{New: func() (stagetest.Subject[*tensor], error) {
		return stagetest.Subject[*tensor]{
			Stage: &square{weight: 3, grad: &tensor{x: make([]float32, 1)}, broken: broken},
			Space: memory.NewGCSpace(
				func(t *tensor) memory.Class { return t.class },
				func(t *tensor) int64 { return int64(4 * len(t.x)) },
			),
			Gradients: pointerGradients{},
			Make: func(want stagetest.Want) (*tensor, error) {
				t := &tensor{x: make([]float32, 8+want.Microbatch), class: want.Class}
				for i := range t.x {
					t.x[i] = want.Float(i)
				}
				return t, nil
			},
			Read: func(t *tensor) ([]byte, error) {
				var data []byte
				for _, v := range t.x {
					data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
				}
				return data, nil
			},
			Weak: stagetest.Weak[tensor],
		}, nil
	}}
}
