package simulate

import (
	"math"
	"slices"

	"github.com/weir-ml/weir/internal/formats/diagnostic"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/lengths"
)

// Rates holds the increases of a stage's costs for each token of a microbatch, or for each unit of the sum
// of its squared lengths. Its fields correspond to the fields of [StageCosts].
type Rates struct {
	F         float64 `json:"f,omitempty"`
	I         float64 `json:"i,omitempty"`
	W         float64 `json:"w,omitempty"`
	B         float64 `json:"b,omitempty"`
	Recompute float64 `json:"recompute,omitempty"`
	Output    float64 `json:"output,omitempty"`
	Gradient  float64 `json:"gradient,omitempty"`
	Saved     float64 `json:"saved,omitempty"`
	FreedByI  float64 `json:"freed_by_i,omitempty"`
	Carry     float64 `json:"carry,omitempty"`
	Offloaded float64 `json:"offloaded,omitempty"`
}

// amounts returns pointers to the costs of a stage that may depend on lengths: the constants, and the
// rates for tokens and for squares.
func (s *StageCosts) amounts() [11]struct {
	constant      *int64
	token, square *float64
} {
	t, q := &s.PerToken, &s.PerSquare
	return [...]struct {
		constant      *int64
		token, square *float64
	}{
		{&s.F, &t.F, &q.F}, {&s.I, &t.I, &q.I}, {&s.W, &t.W, &q.W}, {&s.B, &t.B, &q.B}, {&s.Recompute, &t.Recompute, &q.Recompute},
		{&s.Output, &t.Output, &q.Output}, {&s.Gradient, &t.Gradient, &q.Gradient}, {&s.Saved, &t.Saved, &q.Saved},
		{&s.FreedByI, &t.FreedByI, &q.FreedByI}, {&s.Carry, &t.Carry, &q.Carry}, {&s.Offloaded, &t.Offloaded, &q.Offloaded},
	}
}

// At returns the costs of a microbatch of the given size, which have no rates. Each is rounded to a
// whole number.
func (s *StageCosts) At(size lengths.Size) StageCosts {
	at, t, q := *s, &s.PerToken, &s.PerSquare // without amounts, through which the result would escape to the heap
	at.PerToken, at.PerSquare = Rates{}, Rates{}
	vary := func(v *int64, token, square float64) {
		if token != 0 || square != 0 {
			*v = lengths.Amount{Constant: float64(*v), Token: token, Square: square}.Whole(size)
		}
	}
	vary(&at.F, t.F, q.F)
	vary(&at.I, t.I, q.I)
	vary(&at.W, t.W, q.W)
	vary(&at.B, t.B, q.B)
	vary(&at.Recompute, t.Recompute, q.Recompute)
	vary(&at.Output, t.Output, q.Output)
	vary(&at.Gradient, t.Gradient, q.Gradient)
	vary(&at.Saved, t.Saved, q.Saved)
	vary(&at.FreedByI, t.FreedByI, q.FreedByI)
	vary(&at.Carry, t.Carry, q.Carry)
	vary(&at.Offloaded, t.Offloaded, q.Offloaded)
	return at
}

// FitLengths fits costs with rates to costs that were measured for microbatches of at least three sizes. It also
// returns the largest relative deviation of a measured amount from the fitted costs. If whole coefficients reproduce an
// amount exactly, FitLengths uses them. Joined is 0, because the two microbatches of a pair may differ. All other costs
// that have no rates are those of the first measurement. An error wraps ErrCosts.
func FitLengths(sizes []lengths.Size, measured []*Costs) (fitted *Costs, misfit float64, err error) {
	if len(sizes) < 3 || len(sizes) != len(measured) {
		return nil, 0, diagnostic.Errorf(ErrCosts, "there are %d sizes and %d measurements: give at least three of each", len(sizes), len(measured))
	}
	own := *measured[0]
	own.Stages = slices.Clone(own.Stages)
	for stage := range own.Stages {
		for k, to := range own.Stages[stage].amounts() {
			var points []lengths.Point
			for i, c := range measured {
				if len(c.Stages) != len(own.Stages) {
					return nil, 0, diagnostic.Errorf(ErrCosts, "measurement %d has %d stages, and the first one %d", i, len(c.Stages), len(own.Stages))
				}
				points = append(points, lengths.Point{Size: sizes[i], Value: float64(*c.Stages[stage].amounts()[k].constant)})
			}
			amount, off := lengths.Fit(points)
			whole := lengths.Amount{Constant: math.Round(amount.Constant), Token: math.Round(amount.Token), Square: math.Round(amount.Square)}
			if !slices.ContainsFunc(points, func(p lengths.Point) bool { return whole.At(p.Size) != p.Value }) {
				amount, off = whole, 0
			}
			*to.constant, *to.token, *to.square = int64(math.Round(amount.Constant)), amount.Token, amount.Square
			misfit = max(misfit, off)
		}
		s := &own.Stages[stage]
		s.Joined = 0 // the two microbatches of a pair may differ
		for _, part := range []*int64{&s.FreedByI, &s.Offloaded} {
			*part = min(*part, s.Saved)
		}
		for _, r := range []*Rates{&s.PerToken, &s.PerSquare} {
			r.FreedByI, r.Offloaded = min(r.FreedByI, r.Saved), min(r.Offloaded, r.Saved)
		}
	}
	return &own, misfit, own.Validate()
}

// HasRates reports whether the costs of a stage depend on the size of a microbatch.
func (c *Costs) HasRates() bool {
	return slices.ContainsFunc(c.Stages, func(s StageCosts) bool { return s.PerToken != Rates{} || s.PerSquare != Rates{} })
}

// Uniform returns the same costs without lengths and rates if Lengths is set and all microbatches have the
// same costs, and c otherwise.
func (c *Costs) Uniform() *Costs {
	if len(c.Lengths) == 0 || c.HasRates() && slices.ContainsFunc(c.Lengths, func(s lengths.Size) bool { return s != c.Lengths[0] }) {
		return c
	}
	return c.AtSize(c.Lengths[0])
}

// AtSize returns the costs of a step whose microbatches all have this size. They have no lengths and no
// rates.
func (c *Costs) AtSize(size lengths.Size) *Costs {
	u := *c
	u.Lengths, u.Stages = nil, slices.Clone(c.Stages)
	for i := range u.Stages {
		u.Stages[i] = u.Stages[i].At(size)
	}
	return &u
}

// maxSize returns a size that is at least that of every microbatch in Lengths.
func (c *Costs) maxSize() (size lengths.Size) {
	for _, s := range c.Lengths {
		size = lengths.Max(size, s)
	}
	return size
}

// ValidateLengths reports lengths that do not fit a number of microbatches. Costs with rates need the
// lengths of all microbatches.
func (c *Costs) ValidateLengths(microbatches int) error {
	switch n := len(c.Lengths); {
	case n == 0 && c.HasRates():
		return diagnostic.Errorf(ErrCosts, "the costs depend on the length of a microbatch, but no lengths are given: give the lengths of all %d microbatches", microbatches)
	case n != 0 && n != microbatches:
		return diagnostic.Errorf(ErrCosts, "lengths are given for %d microbatches, but the plan has %d: give as many", n, microbatches)
	}
	return nil
}

// sizesOf returns the sizes of a plan's microbatches, or nil if c has no lengths, as after Uniform if all
// have the same costs.
func (c *Costs) sizesOf(plan *schedule.Plan) (sizes []lengths.Size) {
	for mb := range len(c.Lengths) {
		sizes = append(sizes, c.Lengths[plan.BatchIndex(mb)])
	}
	return sizes
}

// quantity is a number of bytes that the costs of a stage contain.
type quantity uint8

const (
	nothing quantity = iota
	outputBytes
	gradientBytes
	savedBytes
	savedForI
	savedForW
	carryBytes
	offloadedBytes
	weightBytes
	weightGradientBytes
)

// of returns the bytes of one microbatch.
func (q quantity) of(c *StageCosts) int64 {
	switch q {
	case outputBytes:
		return c.Output
	case gradientBytes:
		return c.Gradient
	case savedBytes:
		return c.Saved
	case savedForI:
		return c.FreedByI
	case savedForW:
		return c.Saved - c.FreedByI
	case carryBytes:
		return c.Carry
	case offloadedBytes:
		return c.offloadedBytes()
	case weightBytes:
		return c.Weights
	case weightGradientBytes:
		return c.Gradients
	}
	return 0
}

// bytes returns the bytes of a quantity for a microbatch on a stage.
func (s *simulation) bytes(q quantity, stage, microbatch int) int64 {
	costs := s.costs.Of(stage)
	if s.sizes != nil && q != nothing {
		at := costs.At(s.sizes[microbatch])
		costs = &at
	}
	return q.of(costs)
}
