package stages

import (
	"context"
	"errors"
	"fmt"
	"slices"

	batchctx "github.com/weir-ml/weir/context"
)

// MaxPorts is how many tensors a stage may take or return.
const MaxPorts = 64

// Stage is one stage of a model. The runner calls it from one goroutine, one
// call at a time.
type Stage[T any] interface {
	// Spec says what the stage takes, returns, reads, saves and records. It is
	// asked when the runner is built, and must not change.
	Spec() Spec
	// Forward computes out (len Spec.Outputs, zero on entry) from in (len
	// Spec.Inputs). Handles put into out are handed over.
	Forward(ctx context.Context, mb batchctx.Microbatch[T], in, out []T) error
	// Backward computes gradIn from gradOut, the gradients of the outputs, and
	// contributes to the gradients of parameters. gradIn is zero on entry; it is
	// nil where nothing before this stage trains, and then need not be computed.
	// Ports with NoGrad have the zero T in both and stay so. gradOut is nil for the
	// last stage: its losses start the backward (Microbatch.LossSeed).
	Backward(ctx context.Context, mb batchctx.Microbatch[T], gradOut, gradIn []T) error
}

// Port is one tensor between two stages.
type Port struct {
	Name   string // the same on both sides
	NoGrad bool   // it has no gradient: an index, a mask
}

// Read declares that the stage reads a part of the batch entry. Microbatch.Part
// takes the number of the Read in Spec.Reads, from 1.
type Read struct {
	Part string
	At   batchctx.At // zero: in Forward
}

// Spec is what a stage declares.
type Spec struct {
	Name    string
	Inputs  []Port
	Outputs []Port
	Reads   []Read
	Slots   []string // places for Save; Microbatch.Save takes the number, from 1
	Losses  []string // names of losses; Microbatch.Loss takes the number, from 1
	Metrics []string // which of Losses are reported and never trained: they have no seed
	// WeightCopies are the copies of weights on which the stage computes, made by Quantizer.
	// A stage without any computes on its weights themselves. Microbatch.WeightCopy takes
	// the number, from 1.
	WeightCopies []batchctx.WeightCopy
	// Frozen stages have no weight gradients at all.
	Frozen bool
	// Recomputes says that the backward runs the forward again.
	Recomputes bool
}

// Quantizes reports whether the stage computes on copies of its weights.
func (s *Spec) Quantizes() bool { return len(s.WeightCopies) > 0 }

// Validate reports every fault of the declaration.
func (s *Spec) Validate() error {
	var faults []error
	fault := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf("stages: stage %q: "+format, append([]any{s.Name}, args...)...))
	}
	if s.Name == "" {
		fault("it has no name")
	}
	if len(s.Inputs) > MaxPorts || len(s.Outputs) > MaxPorts {
		fault("%d inputs and %d outputs, at most %d each", len(s.Inputs), len(s.Outputs), MaxPorts)
	}
	if i := slices.Index(s.Slots, ""); i >= 0 {
		fault("slot %d has no name", i)
	}
	for i, w := range s.WeightCopies {
		if w.Name == "" {
			fault("copy %d of its weights has no name", i)
		}
		if w.At != batchctx.AtForward && w.At != batchctx.AtBackward {
			fault("the copy of weight %q is read at %q, want AtForward or AtBackward: declare a copy for each", w.Name, w.At)
		}
		if w.InputOnly && w.At == batchctx.AtForward {
			fault("the copy of weight %q for the forward is for the gradient of the input alone: declare it AtBackward", w.Name)
		}
	}
	for i, read := range s.Reads {
		if read.Part == "" {
			fault("read %d names no entry part", i)
		}
	}
	for i, name := range s.Losses {
		if name == "" {
			fault("loss %d has no name", i)
		}
	}
	for _, name := range s.Metrics {
		if !slices.Contains(s.Losses, name) {
			fault("metric %q is none of its losses %q", name, s.Losses)
		}
	}
	return errors.Join(faults...)
}
