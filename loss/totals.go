package loss

import (
	"fmt"
	"math"
)

// Outcome is the outcome of a step. It says whether the step's losses allow an optimizer step.
type Outcome uint8

// The outcomes.
const (
	// Stepped means that the optimizer may step, or that the set has no objective.
	Stepped Outcome = iota
	// Empty means that the objective's total weight is 0: there is no gradient and no optimizer
	// step.
	Empty
	// Skipped means that a trained loss is not finite. It takes precedence over Empty.
	Skipped
	// OutOfRange means that the factor applied to the gradients overflows or underflows float32, because
	// the objective's total weight is too small or too large. Only the runner returns it, because it
	// depends on the scale of the seeds and on the norm of the gradient.
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

// Value is a loss over the whole step. Every number in it is finite.
type Value struct {
	Name string

	// Value is the sum, the mean, the minimum or the maximum. It is 0 and has no meaning if
	// Present is false.
	Value float64

	// Sum is the exact sum, rounded once. It is 0 for Min and Max, and if NonFinite is set.
	Sum float64

	// Weight is the exact sum of the weights, rounded once, or 0 if it exceeds float64
	// (NonFinite is then set).
	Weight float64

	// Count is the number of records.
	Count int64

	// Present is false if nothing was recorded, if a Mean has a total weight of 0, and if
	// NonFinite is set.
	Present bool

	// NonFinite is true if a recorded sum was NaN or infinite, or if a total or the mean
	// exceeds float64. Value and Sum are then 0, and Present is false. For a trained loss it also
	// makes the Outcome Skipped.
	NonFinite bool
}

// Totals is the result of a step's reduction, which is the same on every rank.
type Totals struct {
	// Values contains one value for each loss, in the order of the set.
	Values []Value

	// Outcome is Stepped, Empty or Skipped.
	Outcome Outcome

	// Objective is the index of the objective, or -1.
	Objective int

	// FirstNonFinite is the lowest microbatch in which a trained loss was NaN or infinite, or
	// -1. It is -1 in a Skipped step in which the losses of every microbatch were finite, but a
	// total was not.
	FirstNonFinite int

	// NonFiniteLoss is the name of the trained loss that made the step Skipped, or "". If there are
	// several, it is the first one in the set to which FirstNonFinite applies.
	NonFiniteLoss string

	// Divisor is the objective's total weight: the only number by which the sums of gradients
	// are divided, once. It is finite and positive if Outcome is Stepped and there is an
	// objective, and 0 otherwise.
	Divisor float64
}

// Totals computes the totals of a step from the merged records of all ranks, or, with one rank, from the
// record that Finish has filled. It is a pure function of the records and of the set of losses, so every
// rank computes the same totals. It returns ErrShape if the record belongs to a different set of losses.
func (l *Ledger) Totals(merged *Record) (*Totals, error) {
	if err := merged.sameAs(l.shape, l.cells); err != nil {
		return nil, err
	}
	cells := merged.cells
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
	return t, nil
}

// skip makes the outcome Skipped and keeps the loss with the lowest microbatch. A microbatch of -1 means
// that only a total is not finite, so a loss with any other microbatch takes precedence.
func (t *Totals) skip(name string, first int) {
	earlier := first >= 0 && (t.FirstNonFinite < 0 || first < t.FirstNonFinite)
	if t.Outcome != Skipped || earlier {
		t.NonFiniteLoss, t.FirstNonFinite = name, first
	}
	t.Outcome = Skipped
}

// value fills v except for its name.
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
		v.Value, v.Present = c.extreme, c.hasExtreme
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
