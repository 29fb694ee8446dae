package stagetest_test

import (
	"math"

	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/stages"
	"github.com/weir-ml/weir/stages/stagetest"
)

// arenaGradients implements the runner's operations on gradients at the end of a step.
type arenaGradients struct{ *product }

func (g arenaGradients) Zero(h handle) error {
	x, err := g.view(h)
	clear(x)
	return err
}

func (g arenaGradients) Add(dst, src handle) error {
	to, err := g.view(dst)
	if err != nil {
		return err
	}
	from, err := g.view(src)
	for i := range from {
		to[i] += from[i]
	}
	return err
}

func (g arenaGradients) SumSquares(h handle) (float64, error) {
	x, err := g.view(h)
	var sum float64
	for _, v := range x {
		sum = math.FMA(float64(v), float64(v), sum)
	}
	return sum, err
}

// subject returns a subject with a product.
func subject(broken string, split bool) (stagetest.Subject[handle], error) {
	arena, err := memory.NewArena(memory.ArenaConfig{Capacity: 1 << 20})
	if err != nil {
		return stagetest.Subject[handle]{}, err
	}
	p := &product{arena: arena, broken: broken}
	for _, h := range []*handle{&p.weights, &p.grads[0], &p.grads[1]} {
		if *h, err = arena.Alloc(memory.Resident, 4*width); err != nil {
			return stagetest.Subject[handle]{}, err
		}
	}
	if p.weight, err = p.view(p.weights); err != nil {
		return stagetest.Subject[handle]{}, err
	}
	copy(p.weight, []float32{1, -2, 0.5, 3})
	var stage stages.Stage[handle] = p
	if split {
		stage = splitProduct{p}
	}
	if broken == "makes nothing" {
		return stagetest.Subject[handle]{Stage: stage, Space: arena, Gradients: arenaGradients{p}}, nil
	}
	return stagetest.Subject[handle]{
		Stage: stage, Space: arena, Gradients: arenaGradients{p}, Read: arena.Data, Close: arena.Close,
		Make: func(want stagetest.Want) (handle, error) {
			n := width * (2 + want.Microbatch%3)
			if want.Name == "index" || want.Kind == stagetest.Part {
				n = width
			}
			if want.Kind == stagetest.GradOut {
				n = int(want.Bytes / 4)
			}
			h, err := arena.Alloc(want.Class, int64(4*n))
			if err != nil {
				return h, err
			}
			x, err := p.view(h)
			for i := range x {
				x[i] = want.Float(i)
			}
			return h, err
		},
		Write: func(h handle, data []byte) error {
			to, err := arena.Data(h)
			copy(to, data)
			return err
		},
	}, nil
}

func config(broken string, split bool) stagetest.Config[handle] {
	return stagetest.Config[handle]{
		New:         func() (stagetest.Subject[handle], error) { return subject(broken, split) },
		Allocations: true,
	}
}
