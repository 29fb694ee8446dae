package loss

import (
	"errors"
	"fmt"
	"math"
)

// ErrShape is returned if two records do not belong to the same set of losses, because their ranks
// disagree about names, reductions, objective or coefficients. AppendBinary also returns it for a record
// that it cannot encode.
var ErrShape = errors.New("loss: records of different losses")

// Cell is the state of one loss. It contains no pointers.
type Cell struct {
	sum     Exact   // total of the finite sums; stays 0 for Min and Max
	weight  Exact   // total weight of all records
	extreme float64 // smallest or largest finite value, for Min and Max; valid if hasExtreme is set
	count   int64   // number of records
	first   int64   // lowest microbatch whose sum was not finite, or -1

	reduction  Reduction
	hasExtreme bool
}

// record adds a contribution whose weight is finite and not negative.
func (c *Cell) record(microbatch int, sum, weight float64) {
	c.count++
	c.weight.Add(weight)
	switch {
	case math.IsNaN(sum) || math.IsInf(sum, 0):
		c.nonFinite(int64(microbatch))
	case c.reduction.extremum():
		c.addExtreme(sum)
	default:
		c.sum.Add(sum)
	}
}

// nonFinite records that a microbatch's sum was not finite, and keeps the lowest such microbatch.
func (c *Cell) nonFinite(microbatch int64) {
	if c.first < 0 || microbatch < c.first {
		c.first = microbatch
	}
}

// addExtreme keeps the smallest or the largest value. It treats -0 as less than +0, so that the
// order of values does not matter.
func (c *Cell) addExtreme(v float64) {
	switch {
	case !c.hasExtreme:
		c.extreme, c.hasExtreme = v, true
	case c.reduction == Min:
		c.extreme = min(c.extreme, v)
	default:
		c.extreme = max(c.extreme, v)
	}
}

func (c *Cell) merge(o *Cell) {
	c.sum.Merge(&o.sum)
	c.weight.Merge(&o.weight)
	c.count += o.count
	if o.first >= 0 {
		c.nonFinite(o.first)
	}
	if o.hasExtreme {
		c.addExtreme(o.extreme)
	}
}

// propagateCarries propagates carries, so that equal contents have equal words.
func (c *Cell) propagateCarries() {
	c.sum.propagateCarries()
	c.weight.propagateCarries()
}

// Record is the contribution of a rank to the reduction of a step. Merging is exact, commutative and
// associative: all orders and groupings of the ranks give the same words. The zero value is empty and
// takes the shape of the first record that is merged into it, but cannot be merged into another.
type Record struct {
	// cells contains one cell for each loss, in the order of the set. The carries of their sums are
	// propagated: equal contents have equal words.
	cells []Cell

	shape uint64 // hash of the set of losses; 0 for a Record that was never filled
}

// Merge adds the contribution of another rank, which it only reads. If it fails, with an error that
// wraps ErrShape, r is unchanged.
func (r *Record) Merge(other *Record) error {
	if other.shape == 0 {
		return fmt.Errorf("%w: an empty record is not a contribution", ErrShape)
	}
	if r.shape == 0 {
		r.shape = other.shape
		r.cells = append(r.cells[:0], other.cells...)
		return nil
	}
	if err := r.sameAs(other.shape, other.cells); err != nil {
		return err
	}
	for i := range r.cells {
		r.cells[i].merge(&other.cells[i])
	}
	return nil
}

// sameAs returns an error that describes the first difference between r and the set of losses with the
// given shape and cells.
func (r *Record) sameAs(shape uint64, cells []Cell) error {
	if len(r.cells) != len(cells) {
		return fmt.Errorf("%w: %d cells here, %d there", ErrShape, len(r.cells), len(cells))
	}
	for i := range cells {
		if a, b := r.cells[i].reduction, cells[i].reduction; a != b {
			return fmt.Errorf("%w: cell %d is a %s here and a %s there", ErrShape, i, a, b)
		}
	}
	if r.shape != shape {
		return fmt.Errorf("%w: the %d losses of both differ in a name, the objective or a coefficient", ErrShape, len(cells))
	}
	return nil
}
