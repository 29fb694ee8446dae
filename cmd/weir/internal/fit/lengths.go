package fit

import (
	"errors"
	"math"

	"github.com/weir-ml/weir/internal/formats/diagnostic"
	"github.com/weir-ml/weir/schedule/simulate"
)

// ByLength returns the costs of the stages of a model, in nanoseconds and bytes, as functions of the sequences'
// lengths, and the cut. It fits the costs to the formulas of Best at three lengths, and checks them at a fourth.
// Without a cut, the layers are cut so that the slowest stage is as fast as possible for sequences of
// Setup.Sequence tokens. Only Model, Setup, Speed and Bandwidth of the search matter.
func (s *Search) ByLength(stages int, cut []int) (*simulate.Costs, []int, error) {
	own := *s
	s = &own
	s.Setup, s.Ranks = s.Setup.withDefaults(), 1
	s.Setup.Microbatch = 1
	if err := errors.Join(s.Model.Validate(), s.Setup.Validate(s.Model)); err != nil {
		return nil, nil, err
	}
	typical := trial{setup: s.Setup, stages: stages}
	if cut == nil && stages <= s.Model.Layers+2 {
		if err := s.price(&typical); err != nil {
			return nil, nil, err
		}
		cut = typical.cut
	}
	cut, err := cutOf(s.Model.Layers, cut, stages, 0)
	if err != nil {
		return nil, nil, err
	}
	// Lengths h, 2h and 3h determine a polynomial of degree two, and 5h checks it. All are multiples of
	// the number of ranks that share a sequence.
	h := 1 << 13 * s.Setup.Context * s.Setup.Tensor
	var at [4][]simulate.StageCosts // by length and stage
	for n, times := range [...]int{1, 2, 3, 5} {
		t := trial{setup: s.Setup, stages: stages, cut: cut}
		t.setup.Sequence = times * h
		if err := s.price(&t); err != nil {
			return nil, nil, err
		}
		at[n] = t.costs.Stages
	}
	costs := &simulate.Costs{Unit: "ns", Latency: 10_000, PerMiB: int64(math.Ceil(1e9 * (1 << 20) / s.Bandwidth))}
	for stage := range stages {
		c := simulate.StageCosts{Resident: at[0][stage].Resident}
		token, square := &c.PerToken, &c.PerSquare
		for _, q := range []struct {
			of            func(*simulate.StageCosts) *int64
			token, square *float64
		}{
			{func(c *simulate.StageCosts) *int64 { return &c.F }, &token.F, &square.F},
			{func(c *simulate.StageCosts) *int64 { return &c.I }, &token.I, &square.I},
			{func(c *simulate.StageCosts) *int64 { return &c.W }, &token.W, &square.W},
			{func(c *simulate.StageCosts) *int64 { return &c.Output }, &token.Output, &square.Output},
			{func(c *simulate.StageCosts) *int64 { return &c.Gradient }, &token.Gradient, &square.Gradient},
			{func(c *simulate.StageCosts) *int64 { return &c.Saved }, &token.Saved, &square.Saved},
			{func(c *simulate.StageCosts) *int64 { return &c.FreedByI }, &token.FreedByI, &square.FreedByI},
			{func(c *simulate.StageCosts) *int64 { return &c.Carry }, &token.Carry, &square.Carry},
		} {
			var v [4]float64
			for n := range at {
				v[n] = float64(*q.of(&at[n][stage]))
			}
			*q.square = max(0, (v[2]-2*v[1]+v[0])/2/float64(h)/float64(h))
			*q.token = max(0, (v[1]-v[0])/float64(h)-3**q.square*float64(h))
			constant := max(0, v[0]-*q.token*float64(h)-*q.square*float64(h)*float64(h))
			*q.of(&c) = int64(math.Round(constant))
			check := constant + *q.token*5*float64(h) + *q.square*25*float64(h)*float64(h)
			if off := math.Abs(check - v[3]); off > 16+1e-6*v[3] {
				return nil, nil, diagnostic.Errorf(ErrSetup, "stage %d: a cost does not grow as a polynomial of the second degree with the length: at %d tokens it is %.0f, expected %.0f", stage, 5*h, v[3], check)
			}
		}
		costs.Stages = append(costs.Stages, c)
	}
	return costs, cut, nil
}
