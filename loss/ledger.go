package loss

import (
	"errors"
	"fmt"
	"math"
)

var (
	// ErrWeight is returned by Record and Join if a weight is negative or not finite. They then
	// store nothing.
	ErrWeight = errors.New("loss: weight is not a finite number >= 0")

	// ErrFinished is returned by Record and Finish after Finish, until Reset.
	ErrFinished = errors.New("loss: the step is over")

	// ErrDef is returned by Record for an index outside the set of losses.
	ErrDef = errors.New("loss: no such loss")

	// ErrMicrobatch is returned by Record for a negative microbatch.
	ErrMicrobatch = errors.New("loss: negative microbatch")
)

// Ledger holds the records of one rank in one step: one cell for each loss, regardless of the
// number of microbatches. It is not safe for concurrent use.
type Ledger struct {
	defs    []Def
	shape   uint64
	cells   []Cell
	weights []float64 // running total weights, rounded; cells contains the exact ones
	over    bool      // Finish was called
}

// NewLedger returns an empty Ledger for a set of losses, which it copies. It returns the errors of
// Validate.
func NewLedger(defs []Def) (*Ledger, error) {
	if err := Validate(defs); err != nil {
		return nil, err
	}
	l := &Ledger{
		defs:    append([]Def(nil), defs...),
		shape:   shapeOf(defs),
		cells:   make([]Cell, len(defs)),
		weights: make([]float64, len(defs)),
	}
	l.Reset()
	return l, nil
}

// Reset starts a new step and discards all records.
func (l *Ledger) Reset() {
	for i := range l.cells {
		l.cells[i] = Cell{reduction: l.defs[i].Reduction, first: -1}
	}
	clear(l.weights)
	l.over = false
}

// Record adds a microbatch's contribution to a loss: its unnormalized sum and its weight. For
// Min and Max the sum is the value itself, and a weight of 0 means that there is no value: Record
// then stores nothing.
//
// A sum that is NaN or infinite is not an error. The ledger stores the lowest microbatch with
// such a sum, and the step is Skipped if the loss is trained. If Record fails, it stores nothing. It
// allocates only if it fails.
//
// The errors wrap ErrWeight, ErrDef, ErrMicrobatch or ErrFinished.
func (l *Ledger) Record(def, microbatch int, sum, weight float64) error {
	if l.over || uint(def) >= uint(len(l.cells)) || microbatch < 0 || !(weight >= 0 && weight <= math.MaxFloat64) {
		return l.refuse(def, microbatch, weight)
	}
	c := &l.cells[def]
	if weight == 0 && c.reduction.extremum() {
		return nil
	}
	c.record(microbatch, sum, weight)
	l.weights[def] += weight
	return nil
}

// refuse returns the error for arguments that Record rejects.
func (l *Ledger) refuse(def, microbatch int, weight float64) error {
	switch {
	case l.over:
		return fmt.Errorf("%w: record after Finish and before Reset", ErrFinished)
	case uint(def) >= uint(len(l.cells)):
		return fmt.Errorf("%w: index %d of %d", ErrDef, def, len(l.cells))
	case microbatch < 0:
		return fmt.Errorf("%w: %d for %q", ErrMicrobatch, microbatch, l.defs[def].Name)
	default:
		return fmt.Errorf("%w: %v for %q at microbatch %d", ErrWeight, weight, l.defs[def].Name, microbatch)
	}
}

// Weight returns the weight recorded for a loss since Reset on this rank, as a rounded running
// sum. It is 0 for an index outside the set.
func (l *Ledger) Weight(def int) float64 {
	if uint(def) >= uint(len(l.weights)) {
		return 0
	}
	return l.weights[def]
}

// Count returns the number of records of a loss since Reset on this rank. It is 0 for an index
// outside the set.
func (l *Ledger) Count(def int) int64 {
	if uint(def) >= uint(len(l.cells)) {
		return 0
	}
	return l.cells[def].count
}

// Finish ends the step and fills r with the records of this rank, as Snapshot does. A second
// call before Reset returns ErrFinished.
func (l *Ledger) Finish(r *Record) error {
	if l.over {
		return fmt.Errorf("%w: a second Finish before Reset", ErrFinished)
	}
	l.over = true
	l.Snapshot(r)
	return nil
}

// Snapshot fills r with the records of this rank, reusing r's memory. The ledger and r share no
// memory afterwards.
func (l *Ledger) Snapshot(r *Record) {
	r.shape = l.shape
	r.cells = append(r.cells[:0], l.cells...)
	for i := range r.cells {
		r.cells[i].propagateCarries()
	}
}
