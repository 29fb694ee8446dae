package layout

import (
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
)

// Profile says what the stages of a model allocate, keep and release, for every shape
// class of microbatches. It is data: a runner records it, a file holds it.
type Profile struct {
	Parts  []string         // names of the entry parts
	Shapes []ShapeProfile   // by shape class; one where all microbatches have the same shape
	Params [][]Param        // by stage
	Facts  []schedule.Facts // by stage: what makes a plan's lifetimes; nil where nobody asks
}

// ShapeProfile is the profile of one shape class.
type ShapeProfile struct {
	Name    string
	Entries []Entry        // one for every set of parts that a rank wants
	Stages  []StageProfile // by stage
}

// Entry is what a source allocates for one microbatch where a rank wants these parts.
type Entry struct {
	Parts   uint64 // one bit for each part that is wanted
	Buffers []Buffer
	Events  []RefChange
	Out     []Ref // by part: what is handed over; none where the part is not wanted
}

// Param is one use of a parameter by a stage.
type Param struct {
	Name   string `json:"name"`  // uses of a tied parameter share it
	Bytes  int64  `json:"bytes"` // of its gradient
	Frozen bool   `json:"frozen,omitempty"`
}

// StageProfile is what one stage allocates, keeps and releases for one microbatch. A call
// that the stage does not have is nil.
type StageProfile struct {
	Stage        string   `json:"stage"`
	Buffers      []Buffer `json:"buffers,omitempty"`       // born in a call of the stage
	Forward      *Call    `json:"forward,omitempty"`       // F
	Whole        *Call    `json:"whole,omitempty"`         // B
	Input        *Call    `json:"input,omitempty"`         // I
	Weight       *Call    `json:"weight,omitempty"`        // W, after I
	Eval         *Call    `json:"eval,omitempty"`          // F of a forward-only plan
	Gather       *Call    `json:"gather,omitempty"`        // UNSHARD; its results end with RESHARD
	Reduce       *Call    `json:"reduce,omitempty"`        // REDUCE_GRAD
	Quantize     *Call    `json:"quantize,omitempty"`      // QUANTIZE: copies of weights, those for the forward and then those for the backward
	QuantizeEval *Call    `json:"quantize_eval,omitempty"` // QUANTIZE where the stage has no backward: those for the forward
}

// Buffer is one allocation. One of class Resident is none: it was there before the step
// and is there after it, a table that a stage returns, and has no events.
type Buffer struct {
	Name   string       `json:"name,omitempty"`                        // for people; "" where nobody named it
	Bytes  int64        `json:"bytes" whole:"bytes,1,281474976710656"` // as asked for
	AtMost bool         `json:"at_most,omitempty"`                     // Bytes is a bound: the size depends on values
	Class  memory.Class `json:"class"`
}

// Call is what happens in one call of a stage, in order. The last Taken of the events
// are the ends of slots: they end with the action, behind its entry parts, inputs and
// gradients.
type Call struct {
	Events []RefChange `json:"events,omitempty"`
	Taken  int         `json:"taken,omitempty" whole:"a number of events,0,1048576"`
	Out    []Ref       `json:"out,omitempty"` // by port: what F returns as outputs, B and I as gradients of inputs
	// Forward is how many of Out, the first ones, are for the forward: of QUANTIZE alone.
	Forward int `json:"forward,omitempty" whole:"a number of copies,0,1048576"`
}

// RefChange is a change of the number of references to a buffer. A buffer begins with the
// one reference of Alloc and ends with its last one. What a call hands over is a
// reference that it does not release: the context does, where the plan says.
type RefChange struct {
	Op  Op
	Ref Ref
}

// Op is what an event does.
type Op uint8

// The operations.
const (
	Alloc   Op = iota // of an own buffer
	Retain            // one reference more
	Release           // one reference less
)

// Ref names a buffer within a profile: one of the stage's own, or what was lent to
// it. The zero Ref is none.
type Ref struct {
	Kind  RefKind
	Index int // into StageProfile.Buffers (or Entry.Buffers), or the number of the port or part
}

// RefKind says what a Ref names.
type RefKind uint8

// The kinds of references.
const (
	None     RefKind = iota
	Own              // a buffer of this profile
	In               // an input of the stage
	GradOut          // the gradient of an output of the stage
	PartRead         // an entry part, by its number in Profile.Parts
)
