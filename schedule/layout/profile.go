package layout

import (
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
)

// Profile holds what the stages of a model allocate, keep and release, for every shape class of
// microbatches. It is data: package record makes it, and [Write] stores it in a file.
type Profile struct {
	Parts     []string             // names of the entry parts
	Shapes    []ShapeProfile       // by shape class; one if all microbatches have the same shape
	Params    [][]Param            // by stage
	StageInfo []schedule.StageInfo // by stage: the facts for the lifetime pass; may be nil
}

// ShapeProfile is the profile of one shape class.
type ShapeProfile struct {
	Name    string
	Entries []EntryProfile // one for each set of parts that some rank wants
	Stages  []StageProfile // by stage
}

// EntryProfile holds what a source allocates for one microbatch if a rank wants these parts.
type EntryProfile struct {
	Parts   uint64 // one bit for each wanted part
	Buffers []Buffer
	Events  []RefChange
	Out     []Ref // by part: the buffer handed over; none if the part is not wanted
}

// Param is one use of a parameter by a stage.
type Param struct {
	Name   string `json:"name"`  // shared by all uses of a tied parameter
	Bytes  int64  `json:"bytes"` // of its gradient
	Frozen bool   `json:"frozen,omitempty"`
}

// StageProfile holds what one stage allocates, keeps and releases for one microbatch. The field of a call
// that the stage does not make is nil.
type StageProfile struct {
	Stage        string   `json:"stage"`
	Buffers      []Buffer `json:"buffers,omitempty"`       // allocated in the calls of the stage
	Forward      *Call    `json:"forward,omitempty"`       // F
	Whole        *Call    `json:"whole,omitempty"`         // B
	Input        *Call    `json:"input,omitempty"`         // I
	Weight       *Call    `json:"weight,omitempty"`        // W, after I
	Eval         *Call    `json:"eval,omitempty"`          // F of a forward-only plan
	Gather       *Call    `json:"gather,omitempty"`        // UNSHARD; RESHARD releases its results
	ZeroGrad     *Call    `json:"zero_grad,omitempty"`     // ZERO_GRAD; WAIT_REDUCE releases its results
	Quantize     *Call    `json:"quantize,omitempty"`      // QUANTIZE: copies of weights, first for the forward and then for the backward
	QuantizeEval *Call    `json:"quantize_eval,omitempty"` // QUANTIZE of a stage without a backward: copies for the forward
	// Slots lists the buffers that F saves, by slot of the stage; the zero Ref marks a slot that stays
	// empty. A plan can offload them.
	Slots []Ref `json:"slots,omitempty"`
}

// Buffer is one allocation. A buffer of class Resident, such as a table that a stage returns, is not
// allocated and has no events: it exists before the step and outlives it.
type Buffer struct {
	Name   string       `json:"name,omitempty"`    // for messages; may be empty
	Bytes  int64        `json:"bytes"`             // as requested
	AtMost bool         `json:"at_most,omitempty"` // Bytes is an upper bound: the size depends on values
	Class  memory.Class `json:"class"`
}

// Call lists the events of one call of a stage, in order. The last Taken events end slots; they take
// effect at the end of the action, after the ends of its entry parts, inputs and gradients.
type Call struct {
	Events []RefChange `json:"events,omitempty"`
	Taken  int         `json:"taken,omitempty"`
	// Out lists, by port, the outputs that F returns or the gradients of inputs that B and I return. For
	// UNSHARD, ZERO_GRAD and QUANTIZE it lists the weights, gradients or copies of weights that they make.
	Out []Ref `json:"out,omitempty"`
	// Forward is the number of buffers at the beginning of Out that are for the forward, in QUANTIZE.
	Forward int `json:"forward,omitempty"`
}

// RefChange changes the number of references to a buffer. Alloc creates a buffer with one reference. The
// buffer ends with its last reference. A call does not release the reference to a buffer that it hands
// over; the context does, at an action that the plan determines.
type RefChange struct {
	Op  Op
	Ref Ref
}

// Op is the operation of an event.
type Op uint8

// The operations.
const (
	Alloc   Op = iota // allocates a buffer of this profile
	Retain            // adds a reference
	Release           // removes a reference
)

// Ref names a buffer within a profile: a buffer of the stage, or one that is lent to it. The zero Ref
// names no buffer.
type Ref struct {
	Kind  RefKind
	Index int // into StageProfile.Buffers (or EntryProfile.Buffers), or the number of the port or part
}

// RefKind is the kind of buffer that a Ref names.
type RefKind uint8

// The kinds of references.
const (
	None     RefKind = iota
	Own              // a buffer of this profile
	In               // an input of the stage
	GradOut          // the gradient of an output of the stage
	PartRead         // an entry part, by its number in Profile.Parts
)
