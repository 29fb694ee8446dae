package loss

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math"
)

// MaxDefs is the largest number of losses that a Ledger or a Record can hold.
const MaxDefs = 1 << 14

// Reduction defines how the records of a loss are reduced to a value.
type Reduction uint8

// The reductions.
const (
	// Mean divides the total sum by the total weight. It is the zero value.
	Mean Reduction = iota
	// Sum adds the sums; the weights do not affect the value.
	Sum
	// Min keeps the smallest value recorded with a weight above 0.
	Min
	// Max keeps the largest value recorded with a weight above 0.
	Max
)

var reductionNames = [...]string{Mean: "mean", Sum: "sum", Min: "min", Max: "max"}

// String returns "sum", "mean", "min" or "max", or "Reduction(n)" for an unknown reduction.
func (r Reduction) String() string {
	if !r.valid() {
		return fmt.Sprintf("Reduction(%d)", uint8(r))
	}
	return reductionNames[r]
}

func (r Reduction) valid() bool { return int(r) < len(reductionNames) }

// extremum reports whether the reduction keeps one of the recorded values.
func (r Reduction) extremum() bool { return r == Min || r == Max }

// Def declares a loss or metric of a step. Exactly one of Objective, Metric and Coefficient is
// set.
type Def struct {
	// Name must be unique in its set and not empty.
	Name string

	// Reduction computes the reported value. It must be Mean or Sum for a loss that is trained.
	Reduction Reduction

	// Objective marks the loss whose total weight is the only divisor of the step, whether its
	// value is a Mean or a Sum. A training set has exactly one objective; a set without one is
	// for evaluation only.
	Objective bool

	// Metric marks a value that is reported but not trained.
	Metric bool

	// Coefficient is the weight of an additional trained term relative to the objective. It must be known
	// before the step and must not be 0: to report a term without training it, set Metric instead. It is
	// 0 for the objective and for metrics.
	Coefficient float64
}

// trained reports whether gradients flow from this loss.
func (d *Def) trained() bool { return d.Objective || d.Coefficient != 0 }

// Validate returns all faults in a set of losses, joined, or nil. An empty set and a set without an
// objective are valid.
func Validate(defs []Def) error {
	var faults []error
	if len(defs) > MaxDefs {
		return fmt.Errorf("loss: %d losses, at most %d are allowed", len(defs), MaxDefs)
	}
	objective := -1
	seen := make(map[string]int, len(defs))
	for i := range defs {
		d := &defs[i]
		fault := func(format string, args ...any) {
			faults = append(faults, fmt.Errorf("loss: def %d (%q): %s", i, d.Name, fmt.Sprintf(format, args...)))
		}
		if d.Name == "" {
			fault("the name is empty")
		} else if first, dup := seen[d.Name]; dup {
			fault("the name is taken by def %d", first)
		} else {
			seen[d.Name] = i
		}
		if !d.Reduction.valid() {
			fault("unknown reduction %d", uint8(d.Reduction))
		}
		if math.IsNaN(d.Coefficient) || math.IsInf(d.Coefficient, 0) {
			fault("coefficient %v is not finite", d.Coefficient)
		} else if d.Objective && d.Coefficient != 0 {
			fault("coefficient %v on the objective, to which the other coefficients are relative: leave it out", d.Coefficient)
		} else if d.Metric && d.trained() {
			fault("it is a metric, according to this def or to a stage, and is trained: it can be only one of the two")
		} else if !d.Metric && !d.trained() {
			fault("it is neither the objective nor a metric and has no coefficient: set one of Objective, Metric and Coefficient")
		} else if d.Reduction.extremum() && d.Coefficient != 0 {
			fault("coefficient %v on a %s, which cannot be trained", d.Coefficient, d.Reduction)
		}
		if d.Objective {
			if d.Reduction.extremum() {
				fault("the objective is a %s, it must be a mean or a sum", d.Reduction)
			}
			if objective >= 0 {
				fault("a second objective, def %d is the first", objective)
			} else {
				objective = i
			}
		}
	}
	if objective < 0 {
		for i := range defs {
			if defs[i].trained() {
				faults = append(faults, fmt.Errorf("loss: def %d (%q): a coefficient without an objective to which it is relative: set one", i, defs[i].Name))
			}
		}
	}
	return errors.Join(faults...)
}

// shapeOf returns a hash of the set: FNV-1a over names, reductions, objective and coefficients. Two
// records can be merged only if their hashes are equal. The hash is never 0, which denotes a Record
// that was never filled.
func shapeOf(defs []Def) uint64 {
	h := fnv.New64a()
	word := func(v uint64) { _ = binary.Write(h, binary.LittleEndian, v) } // a hash never fails
	for i := range defs {
		d := &defs[i]
		word(uint64(len(d.Name)))
		_, _ = io.WriteString(h, d.Name)
		word(uint64(d.Reduction))
		coefficient := d.Coefficient
		if d.Objective {
			word(1)
			coefficient = 1
		} else {
			word(0)
		}
		word(math.Float64bits(coefficient + 0)) // + 0 turns -0 into 0
	}
	return max(h.Sum64(), 1)
}
