package stages

import (
	"context"
	"errors"
	"fmt"
	"slices"

	batchctx "github.com/weir-ml/weir/context"
)

// MaxPorts is the maximum number of inputs and of outputs of a stage.
const MaxPorts = 64

// Stage is a stage of a model. The runner calls it from one goroutine, one call at a time.
type Stage[T any] interface {
	// Spec returns the declaration of the stage. It is requested when the runner is built, and
	// must not change.
	Spec() Spec
	// Forward computes out (len Spec.Outputs, zero on entry) from in (len Spec.Inputs). The
	// runner takes over the handles in out.
	Forward(ctx context.Context, mb batchctx.Microbatch[T], in, out []T) error
	// Backward computes gradIn from gradOut, the gradients of the outputs, and contributes to the
	// gradients of parameters. gradIn is zero on entry, or nil if no stage before this one trains,
	// because it is not needed then. The elements of ports with NoGrad are the zero T in both slices, and
	// must remain so. gradOut is nil for the last stage, whose losses start the backward
	// (Microbatch.LossSeed).
	Backward(ctx context.Context, mb batchctx.Microbatch[T], gradOut, gradIn []T) error
}

// Port describes a tensor that one stage passes to the next.
type Port struct {
	Name   string // must be the same on both sides
	NoGrad bool   // the tensor has no gradient, like an index or a mask
}

// Read declares that the stage reads a part of the batch entry. Microbatch.Part takes the number of the
// Read in Spec.Reads, counted from 1.
type Read struct {
	Part string
	At   batchctx.At // the actions that read the part; zero means AtForward
}

// Spec is the declaration of a stage.
type Spec struct {
	Name    string
	Inputs  []Port
	Outputs []Port
	Reads   []Read
	Slots   []string // names of slots for Save; Microbatch.Save takes the number, counted from 1
	// Consumers are the actions for which Save in a forward keeps a tensor, by slot: see Decl.Slot. The list
	// may be shorter than Slots; further slots are for the backward (ByBackward).
	Consumers []batchctx.Consumer
	Losses    []string // names of losses; Microbatch.Loss takes the number, counted from 1
	Metrics   []string // the Losses that are reported and never trained: they have no seed
	// WeightCopies are the copies of weights on which the stage computes. It makes them itself, as a
	// Quantizer; if there are none, it computes directly on its weights. Microbatch.WeightCopy takes the
	// number, counted from 1.
	WeightCopies []batchctx.WeightCopy
	// Frozen declares that the stage has no weight gradients.
	Frozen bool
	// Recomputes reports that the backward runs the forward again.
	Recomputes bool
}

// Quantizes reports whether the stage computes on copies of its weights.
func (s *Spec) Quantizes() bool { return len(s.WeightCopies) > 0 }

// Validate returns all faults in the declaration, joined, or nil.
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
	if len(s.Consumers) > len(s.Slots) {
		fault("%d consumers for %d slots", len(s.Consumers), len(s.Slots))
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
			fault("the copy of weight %q is AtForward and InputOnly, which is for the gradient of the input: declare it AtBackward", w.Name)
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
			fault("metric %q is not one of its losses %q", name, s.Losses)
		}
	}
	return errors.Join(faults...)
}
