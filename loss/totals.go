package loss

import (
	"fmt"
	"math"
)

// Outcome says what a step's losses allow.
type Outcome uint8

// The outcomes.
const (
	// Stepped means that the optimizer may step, or that the set has no
	// objective and there is nothing to decide.
	Stepped Outcome = iota
	// Empty means that the objective's total weight is 0: there is nothing to
	// learn from, and no optimizer step.
	Empty
	// Skipped means that a trained loss is not finite. It wins over Empty.
	Skipped
	// OutOfRange means that float32 cannot hold the factor of the gradients, since
	// the objective's total weight is too small or too large. Totals never says so: the
	// runner does, which knows the scale of the seeds and the norm of the gradient.
	OutOfRange
)

// String returns "stepped", "empty", "skipped" or "out-of-range".
func (o Outcome) String() string {
	switch o {
	case Stepped:
		return "stepped"
	case Empty:
		return "empty"
	case Skipped:
		return "skipped"
	case OutOfRange:
		return "out-of-range"
	}
	return fmt.Sprintf("Outcome(%d)", uint8(o))
}

// Value is one loss over the whole step. Every number in it is finite.
type Value struct {
	Name string

	// Value is the sum, the mean, the minimum or the maximum. Where Present is
	// false there is none, and it is 0 only because a field holds something.
	Value float64

	// Sum is the exact sum, rounded once. It is 0 for Min and Max, and where
	// NonFinite is set.
	Sum float64

	// Weight is the exact sum of the weights, rounded once, or 0 where it is
	// beyond float64 (NonFinite is then set).
	Weight float64

	// Count is the number of records.
	Count int64

	// Present is false if nothing was recorded, if a Mean has a total weight
	// of 0, and if NonFinite is set.
	Present bool

	// NonFinite is true if a recorded sum was a NaN or an infinity, or if a
	// total or the mean is beyond float64. A metric shows it here and nowhere
	// else; for a trained loss it makes the Outcome Skipped.
	NonFinite bool
}

// Totals is the result of a step's one reduction, the same on every rank.
type Totals struct {
	// Values has one value for each loss, in the order of the set.
	Values []Value

	// Outcome is the verdict of the losses.
	Outcome Outcome

	// Objective is the index of the objective, or -1.
	Objective int

	// FirstNonFinite is the lowest microbatch in which a trained loss was a NaN
	// or an infinity, or -1. It stays -1 for a Skipped step in which every
	// microbatch was finite and a total is not.
	FirstNonFinite int

	// NonFiniteLoss names the trained loss that made the step Skipped, the one
	// of FirstNonFinite where there are several, or "".
	NonFiniteLoss string

	// Divisor is the objective's total weight: the one number that the sums of
	// gradients are divided by, once. It is finite and above 0 where Outcome is
	// Stepped and there is an objective, and 0 everywhere else.
	Divisor float64
}

// Totals reads the record of the step, merged with those of all ranks: it is what
// Finish has filled, where there is one rank. The error is ErrShape where the record is
// of other losses.
func (l *Ledger) Totals(merged *Record) (*Totals, error) {
	if err := merged.sameAs(l.shape, l.cells); err != nil {
		return nil, err
	}
	return l.totals(merged.Cells), nil
}

// totals reads the merged cells. It is a pure function of them and of the set,
// so every rank that holds the same cells reaches the same verdict.
func (l *Ledger) totals(cells []Cell) *Totals {
	t := &Totals{Values: make([]Value, len(cells)), Objective: -1, FirstNonFinite: -1}
	for i := range cells {
		d, c, v := &l.defs[i], &cells[i], &t.Values[i]
		v.Name = d.Name
		c.value(v)
		if d.trained() && v.NonFinite {
			t.skip(d.Name, int(c.first))
		}
		if d.Objective {
			t.Objective = i
		}
	}
	if t.Objective >= 0 && t.Outcome != Skipped {
		t.Divisor = t.Values[t.Objective].Weight
		if t.Divisor == 0 {
			t.Outcome = Empty
		}
	}
	return t
}

// skip makes the outcome Skipped and keeps the loss with the lowest microbatch;
// -1 is a total that is not finite, and yields to any microbatch.
func (t *Totals) skip(name string, first int) {
	earlier := first >= 0 && (t.FirstNonFinite < 0 || first < t.FirstNonFinite)
	if t.Outcome != Skipped || earlier {
		t.NonFiniteLoss, t.FirstNonFinite = name, first
	}
	t.Outcome = Skipped
}

// value fills v, all but its name.
func (c *Cell) value(v *Value) {
	v.Count = c.count
	v.Weight = c.weight.Float64()
	v.Sum = c.sum.Float64()
	switch c.reduction {
	case Sum:
		v.Value, v.Present = v.Sum, c.count > 0
	case Mean:
		if v.Present = v.Weight > 0; v.Present {
			v.Value = v.Sum / v.Weight
		}
	default:
		v.Value, v.Present = c.extreme, c.has
	}
	if math.IsInf(v.Weight, 0) {
		v.Weight, v.NonFinite = 0, true
	}
	if c.first >= 0 || math.IsInf(v.Sum, 0) || math.IsInf(v.Value, 0) || math.IsNaN(v.Value) {
		v.NonFinite = true
	}
	if v.NonFinite {
		v.Value, v.Sum, v.Present = 0, 0, false
	}
}
