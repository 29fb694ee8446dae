package stagetest

import (
	"errors"

	"github.com/weir-ml/weir/loss"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/stages"
)

// Config is the configuration of a check. New must be set.
type Config[T any] struct {
	// New makes the stage in a new space, with the same weights every time. It is called several
	// dozen times.
	New func() (Subject[T], error)
	// Parts names the parts of a batch entry; nil means the parts that the stage reads.
	Parts []string
	// Losses are the losses that the stage may record; nil means the declared losses, each a
	// mean: metrics as metrics, the first other loss as the objective, and further ones with a
	// coefficient.
	Losses []loss.Def
	// EvalDiffers declares that the outputs in Eval intentionally differ from those in Train,
	// as with dropout. Eval is then compared only with itself.
	EvalDiffers bool
	// GradientDiffers declares that gradients intentionally differ from finite differences of the
	// losses, for instance because the stage rounds, or passes gradients through an operation that has
	// none. The suite then does not compare them. Gradients of stages that compute on copies of their
	// weights are compared only on an [Exact].
	GradientDiffers bool
	// Allocations requires that the calls of the stage allocate the same on the Go heap with 16
	// microbatches as with 64 (L11).
	Allocations bool
}

// Subject is a stage to check, with the operations on the tensors in its space that the suite
// needs. Stage and Space must be set.
type Subject[T any] struct {
	Stage stages.Stage[T]
	Space memory.Space[T]
	// Make returns a new tensor in Space that the suite owns: a part of a batch entry, an
	// input, or the gradient of an output. The tensor must depend on want alone, and
	// microbatches should be uneven. A stage without any of the three needs no Make.
	Make func(want Want) (T, error)
	// Read returns the bytes of a tensor, possibly as a view. If it is nil, only losses are
	// compared, and Run logs a note.
	Read func(T) ([]byte, error)
	// Write overwrites the start of a tensor. It may be nil. With it, the suite fills gradients with
	// NaN before a step, and changes weights (batchctx.Use.Weight) and inputs slightly, to compare
	// gradients with finite differences of the losses. Weights, and inputs and outputs with a gradient,
	// must then be float32 in the bytes of Read.
	Write func(T, []byte) error
	// Gradients must be set if the stage trains.
	Gradients runner.Gradients[T]
	// Weak returns a function that reports whether the tensor is still reachable, without
	// keeping it reachable; for pointers it is [Weak]. With it the suite requires that no tensor
	// of a microbatch is reachable once the microbatch has retired. It may be nil. Set it if
	// memory belongs to a garbage collector, because neither book contains such memory.
	Weak func(T) (reachable func() bool)
	// Close closes the subject. It may be nil.
	Close func() error
}

// TensorKind is the kind of a tensor that the suite requests.
type TensorKind uint8

// Kinds of tensors.
const (
	Part    TensorKind = iota // a part of a batch entry
	Input                     // an input of the stage
	GradOut                   // the gradient of an output
)

// String returns the kind in words, for messages.
func (k TensorKind) String() string {
	return [...]string{"entry part", "input", "gradient of output"}[k]
}

// Want describes the tensor to make.
type Want struct {
	Kind       TensorKind
	Index      int    // index of the part in Config.Parts, or of the port
	Name       string // name of the part or the port
	Microbatch int
	Class      memory.Class // of the allocation
	Bytes      int64        // for a GradOut the size of the output, otherwise 0
}

// Float returns element i of a tensor, in [-1, 1). The elements differ for every part, port and
// microbatch.
func (w Want) Float(i int) float32 { return float32(int64(w.draw(i)>>40)-1<<23) / (1 << 23) }

// Int is like Float, but returns an integer in [0, n).
func (w Want) Int(i, n int) int { return int(w.draw(i) >> 33 % uint64(n)) }

// draw returns splitmix64 of the position of the element.
func (w Want) draw(i int) uint64 {
	x := uint64(w.Kind)<<56 ^ uint64(w.Index)<<48 ^ uint64(w.Microbatch)<<32 ^ uint64(i)
	x = (x + 1) * 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// validate reports every fault of the subject.
func (s *Subject[T]) validate() error {
	var faults []error
	if s.Stage == nil {
		faults = append(faults, errors.New("stagetest: Subject.Stage is nil"))
	}
	if s.Space == nil {
		faults = append(faults, errors.New("stagetest: Subject.Space is nil"))
	}
	if s.Make == nil && s.Stage != nil {
		if spec := s.Stage.Spec(); len(spec.Reads)+len(spec.Inputs)+len(spec.Outputs) > 0 {
			faults = append(faults, errors.New("stagetest: Subject.Make is nil, and the stage has reads, inputs or outputs"))
		}
	}
	return errors.Join(faults...)
}
