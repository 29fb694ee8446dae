package schedule

// Kind is the kind of an action.
type Kind uint8

// The kinds, with PyTorch's letters. A plan may contain actions of the reserved kinds, but no function
// of this package generates them yet.
const (
	None        Kind = iota
	F                // forward of a stage
	B                // full backward: input and weight gradients
	I                // input gradient
	W                // weight gradient
	SendF            // SEND_F: the stage sends its output
	RecvF            // RECV_F: the stage receives its input
	SendB            // SEND_B: the stage sends the gradient of its input
	RecvB            // RECV_B: the stage receives the gradient of its output
	WaitF            // WAIT_F: the rank waits until the buffer of the SEND_F with the same stage and microbatch is free
	WaitB            // WAIT_B: the rank waits until the buffer of the SEND_B with the same stage and microbatch is free
	Offload          // OFFLOAD: the copy of saved state from near to far memory starts
	WaitOffload      // WAIT_OFFLOAD: the rank waits until that copy is complete, and then frees the near buffers
	Reload           // RELOAD: near buffers are allocated again, and the copy of saved state back from far memory starts
	Unshard          // UNSHARD: weights are gathered
	Reshard          // RESHARD: gathered weights are released
	ReduceGrad       // REDUCE_GRAD: the reduction of gradients over replicas starts
	ZeroGrad         // ZERO_GRAD: whole accumulators are allocated for the stage's gradients and set to zero
	WaitReduce       // WAIT_REDUCE: the rank waits until a started reduction is complete, and then frees the whole accumulators
	Recompute        // reserved
	Quantize         // QUANTIZE: the copies of the stage's weights for this step are made
	Optimizer        // reserved

	// NumKinds is the number of kinds, including None.
	NumKinds = int(Optimizer) + 1
)

// Compute reports whether the kind runs a stage: F, B, I or W.
func (k Kind) Compute() bool { return k >= F && k <= W }

// Phase orders the kinds of actions of a stage and microbatch by the earliest point at which they can
// run: the earlier this point, the lower the result. All kinds that it does not order have the highest phase.
func (k Kind) Phase() int {
	switch k {
	case RecvF:
		return 0
	case F:
		return 1
	case SendF, RecvB:
		return 2
	case WaitF:
		return 3
	case B, I:
		return 4
	case W, SendB:
		return 5
	}
	return 6
}

// Drop is a set of drop bits. Each bit of an action ends a lifetime on the action's rank.
type Drop uint16

// The drop bits.
const (
	DropParts  Drop = 1 << iota // p: the entry parts that Plan.Parts lists for this stage and kind
	DropInput                   // i: the stage's input, the previous stage's output
	DropOutput                  // o: the stage's output, if nothing reads it
	DropGrad                    // g: the gradient of the stage's output
	DropSaved                   // s: the state saved for this action and, at the stage's last computation for the microbatch, all that is left of it; at WAIT_OFFLOAD, the near buffers of the slots that were moved
	DropSent                    // t: the buffer of a completed transfer
	Retire                      // r: the microbatch itself, at its last action on this rank, after which the runner audits live memory

	DropForwardWeights  // f: the copies of the stage's weights that its forward reads
	DropBackwardWeights // b: the copies of the stage's weights that its backward reads
	DropFar             // a: the copy of saved state in far memory, after the action has waited for its reload
)

// Action is one action of a rank, packed into a word: 28 bits for the microbatch, 14 for the stage, 5
// for the kind, 1 for the join and 16 for the drops. Actions are values; compare them with ==.
type Action uint64

const (
	dropBits  = 16
	joinShift = dropBits
	kindBits  = 5
	stageBits = 14
	mbBits    = 28

	// The positions of the lowest bits of the kind, the stage and the microbatch, for packages that index by parts of
	// an action.
	KindShift  = joinShift + 1
	StageShift = KindShift + kindBits
	MbShift    = StageShift + stageBits

	// Stages of actions are less than MaxStages, and microbatches less than MaxMicrobatches.
	MaxStages       = 1 << stageBits
	MaxMicrobatches = 1 << mbBits
)

// NewAction returns the action of a kind on a stage and a microbatch, without drops. It requires that
// 0 <= stage < MaxStages and 0 <= microbatch < MaxMicrobatches, which Params.Validate and ParseText
// ensure.
func NewAction(kind Kind, stage, microbatch int) Action {
	return Action(microbatch)<<MbShift | Action(stage)<<StageShift | Action(kind)<<KindShift
}

// Kind returns the action's kind.
func (a Action) Kind() Kind { return Kind(a >> KindShift & (1<<kindBits - 1)) }

// Stage returns the action's stage, from 0.
func (a Action) Stage() int { return int(a >> StageShift & (1<<stageBits - 1)) }

// Microbatch returns the action's microbatch, from 0.
func (a Action) Microbatch() int { return int(a >> MbShift) }

// Drop returns the action's drop bits.
func (a Action) Drop() Drop { return Drop(a) }

// Joined reports whether this action and the next one of its rank are a joined pair, whose actions overlap.
func (a Action) Joined() bool { return a>>joinShift&1 == 1 }

// WithDrop returns the action with exactly the given drop bits.
func (a Action) WithDrop(d Drop) Action { return a&^(1<<dropBits-1) | Action(d) }

// WithJoin returns the action with the join bit set or cleared.
func (a Action) WithJoin(join bool) Action {
	a &^= 1 << joinShift
	if join {
		a |= 1 << joinShift
	}
	return a
}

// Shift returns the action with n added to its microbatch; n may be negative. Actions that belong to a
// stage alone (UNSHARD, RESHARD, REDUCE_GRAD, ZERO_GRAD, WAIT_REDUCE, QUANTIZE, OPTIMIZER) have no
// microbatch and are returned unchanged.
func (a Action) Shift(n int) Action {
	if a.Kind().OfStage() {
		return a
	}
	return a + Action(n)<<MbShift
}
