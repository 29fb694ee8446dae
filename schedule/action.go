package schedule

// Kind is the kind of an action.
type Kind uint8

// The kinds. The letters are those of PyTorch. Plans may name the reserved kinds, but nothing here
// emits them yet.
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
	WaitF            // WAIT_F: the rank waits until SEND_F of this stage and microbatch has left its buffer
	WaitB            // WAIT_B: the rank waits until SEND_B of this stage and microbatch has left its buffer
	Offload          // OFFLOAD: the copy of saved state from near to far memory starts
	WaitOffload      // WAIT_OFFLOAD: the rank waits until that copy is complete, and the near buffers end
	Reload           // RELOAD: saved state has near buffers again, and the copy back from far memory starts
	Unshard          // UNSHARD: weights are gathered
	Reshard          // RESHARD: gathered weights are given up
	ReduceGrad       // REDUCE_GRAD: the reduction of gradients over replicas starts
	ZeroGrad         // ZERO_GRAD: the stage's gradients have whole accumulators from here on, which are zero
	WaitReduce       // WAIT_REDUCE: the rank waits until a started reduction is complete, and the whole accumulators end
	Recompute        // reserved
	Quantize         // QUANTIZE: the step's copies of the stage's weights are made
	Optimizer        // reserved

	// NumKinds is the number of kinds, None among them.
	NumKinds = int(Optimizer) + 1
)

// Compute reports whether the kind runs a stage: F, B, I or W.
func (k Kind) Compute() bool { return k >= F && k <= W }

// Drop is a set of drop bits: the lifetimes that end with an action on its rank.
type Drop uint16

// The drop bits. The plan's table (Plan.Parts for entry parts) defines the meaning of a bit for one
// stage and kind; the bit on the action says that it happens.
const (
	DropParts  Drop = 1 << iota // p: the entry parts that the table lists for this stage and kind
	DropInput                   // i: the stage's input, the previous stage's output
	DropOutput                  // o: the stage's output, if nothing reads it
	DropGrad                    // g: the gradient of the stage's output
	DropSaved                   // s: the state that was saved for this kind, and the frame after the last kind; at WAIT_OFFLOAD, the near buffers of the slots that are away
	DropSent                    // t: the buffer of a completed transfer
	Retire                      // r: the microbatch's last action on this rank: the books are compared here

	DropForwardWeights  // f: the copies of the stage's weights that its forward reads
	DropBackwardWeights // b: the copies of the stage's weights that its backward reads
	DropFar             // a: the copy of saved state in far memory, after the action has waited for the copy back
)

// Action is one thing that a rank does, packed into a word: microbatch 28 bits,
// stage 14, kind 5, join 1, drops 16. Actions are values; compare them with ==.
type Action uint64

const (
	dropBits  = 16
	joinShift = dropBits
	KindShift = joinShift + 1
	kindBits  = 5
	stageBits = 14
	mbBits    = 28

	StageShift = KindShift + kindBits
	MbShift    = StageShift + stageBits

	// MaxStages and MaxMicrobatches bound the stages and microbatches of actions.
	MaxStages       = 1 << stageBits
	MaxMicrobatches = 1 << mbBits
)

// Act returns the action of a kind on a stage and a microbatch, without drops.
// 0 <= stage < MaxStages and 0 <= microbatch < MaxMicrobatches; Params.Validate and
// ParseText ensure both.
func Act(kind Kind, stage, microbatch int) Action {
	return Action(microbatch)<<MbShift | Action(stage)<<StageShift | Action(kind)<<KindShift
}

// Kind returns the kind.
func (a Action) Kind() Kind { return Kind(a >> KindShift & (1<<kindBits - 1)) }

// Stage returns the stage, from 0.
func (a Action) Stage() int { return int(a >> StageShift & (1<<stageBits - 1)) }

// Microbatch returns the microbatch, from 0.
func (a Action) Microbatch() int { return int(a >> MbShift) }

// Drop returns the drop bits.
func (a Action) Drop() Drop { return Drop(a) }

// Joined reports whether this action and the next one overlap.
func (a Action) Joined() bool { return a>>joinShift&1 == 1 }

// WithDrop returns the action with exactly these drop bits.
func (a Action) WithDrop(d Drop) Action { return a&^(1<<dropBits-1) | Action(d) }

// WithJoin returns the action with the join bit set or cleared.
func (a Action) WithJoin(join bool) Action {
	a &^= 1 << joinShift
	if join {
		a |= 1 << joinShift
	}
	return a
}

// Shift returns the action with n added to its microbatch; n may be negative. An
// action of a stage alone (UNSHARD, RESHARD, REDUCE_GRAD, ZERO_GRAD, WAIT_REDUCE, QUANTIZE, OPTIMIZER) is of no
// microbatch and comes back as it is.
func (a Action) Shift(n int) Action {
	if a.Kind().OfStage() {
		return a
	}
	return a + Action(n)<<MbShift
}
