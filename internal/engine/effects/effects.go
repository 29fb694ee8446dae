package effects

import (
	"math/bits"

	"github.com/weir-ml/weir/schedule"
)

// BufferKind is the purpose for which a buffer is held between two actions.
type BufferKind uint8

// The kinds of buffers, in the order in which an action releases them.
const (
	None            BufferKind = iota
	Part                       // a part of an entry
	Input                      // an input of a stage
	Gradient                   // the gradient of a stage's output
	Saved                      // tensors that a stage keeps for one of its later actions
	Far                        // a copy of saved state in far memory
	SentOutput                 // an output of a stage, until the transfer ends
	SentGradient               // the gradient of a stage's input, until the transfer ends
	ForwardWeights             // copies of weights that a stage's forward reads
	BackwardWeights            // copies of weights that its backward reads
	Gathered                   // gathered weights, from UNSHARD to RESHARD
	Accumulator                // whole gradients, from ZERO_GRAD to WAIT_REDUCE
	Output                     // an output of a last stage, which no action reads
	NumBufferKinds  = iota
)

// String returns the name of the kind in words.
func (p BufferKind) String() string {
	return [NumBufferKinds]string{"nothing", "entry part", "input", "gradient of output", "saved state", "far copy of saved state", "sent output", "sent gradient of input",
		"copies of weights for the forward", "copies of weights for the backward", "gathered weights", "whole gradients", "output"}[p]
}

// Set is a set of kinds of buffers.
type Set uint16

// First returns the first kind of a set that is not empty; s&(s-1) is the set without it.
func (s Set) First() BufferKind { return BufferKind(bits.TrailingZeros16(uint16(s))) }

// drops maps a kind of buffer to the drop bit that ends it. Sent outputs and sent gradients share a bit;
// gathered weights and whole gradients have none.
var drops = [NumBufferKinds]schedule.Drop{
	Part: schedule.DropParts, Input: schedule.DropInput, Gradient: schedule.DropGrad, Saved: schedule.DropSaved, Far: schedule.DropFar,
	SentOutput: schedule.DropSent, SentGradient: schedule.DropSent, Output: schedule.DropOutput,
	ForwardWeights: schedule.DropForwardWeights, BackwardWeights: schedule.DropBackwardWeights,
}

// Drops returns the drop bits of the kinds in the set.
func (s Set) Drops() (bits schedule.Drop) {
	for ; s != 0; s &= s - 1 {
		bits |= drops[s.First()]
	}
	return bits
}

// Effects holds the effects of an action.
type Effects struct {
	Pulls bool       // the action first pulls entries, up to Upto
	To    BufferKind // None if there is no result
	Stage int32      // the stage that owns the result
	Ends  Set        // the kinds of buffers that the action releases
	Due   Set        // the kinds that end with an action of this kind, regardless of its drop bits, and copies of weights in Ends
	Last  bool       // the action is the stage's last computation for the microbatch
	Parts uint64     // the entry parts that the action releases
}

// OfKind returns the effects that depend only on the stage and on the kind of an action. Ends
// contains saved state if the action takes any of it, and Due contains saved state if the action
// takes the last of it. The order of the program determines the release of entry parts, of copies
// of weights, and of copies in far memory.
func OfKind(plan *schedule.Plan, stage int, kind schedule.Kind) Effects {
	placement := &plan.Placement
	rank := placement.Rank
	e := Effects{Pulls: kind == schedule.F, Stage: int32(stage), Last: plan.Ends(stage, kind)}
	switch kind {
	case schedule.F:
		switch {
		case placement.Last(stage):
			e.To, e.Ends = Output, 1<<Output
		case rank[stage+1] == rank[stage]:
			e.To, e.Stage = Input, e.Stage+1
		default:
			e.To = SentOutput
		}
		if !placement.First(stage) {
			e.Ends |= 1 << Input
		}
		if e.Last {
			e.Ends |= 1 << Saved
		}
	case schedule.B, schedule.I:
		switch {
		case placement.First(stage) || !plan.HasBackward(stage-1):
		case rank[stage-1] == rank[stage]:
			e.To, e.Stage = Gradient, e.Stage-1
		default:
			e.To = SentGradient
		}
		e.Ends = 1 << Saved
		if !placement.Last(stage) {
			e.Ends |= 1 << Gradient
		}
	case schedule.W:
		e.Ends = 1 << Saved
	case schedule.RecvF:
		e.To = Input
	case schedule.RecvB:
		e.To = Gradient
	case schedule.WaitF:
		e.Ends = 1 << SentOutput
	case schedule.WaitB:
		e.Ends = 1 << SentGradient
	case schedule.Offload:
		e.To = Far
	case schedule.WaitOffload:
		e.Ends = 1 << Saved
	case schedule.Reload:
		e.To = Saved
	case schedule.Quantize:
		e.To = ForwardWeights
	case schedule.Unshard:
		e.To = Gathered
	case schedule.Reshard:
		e.Ends = 1 << Gathered
	case schedule.ZeroGrad:
		e.To = Accumulator
	case schedule.WaitReduce:
		e.Ends = 1 << Accumulator
	}
	if e.Due = e.Ends; !e.Last {
		e.Due &^= 1 << Saved
	}
	return e
}

// WeightReads returns which copies of its stage's weights an action of the given kind reads. The backward
// of a stage that recomputes also reads the copies for the forward. W reads none, because the gradient of
// a weight does not depend on them.
func WeightReads(kind schedule.Kind, recomputes bool) Set {
	switch {
	case kind == schedule.F:
		return 1 << ForwardWeights
	case kind != schedule.B && kind != schedule.I:
		return 0
	case recomputes:
		return 1<<ForwardWeights | 1<<BackwardWeights
	}
	return 1 << BackwardWeights
}

// Of returns the effects of an action in a plan whose lifetimes are set. The action's drop bits determine
// Ends, except for gathered weights, whole gradients and the output of a last stage, whose end its kind
// determines.
func Of(plan *schedule.Plan, a schedule.Action) Effects {
	const byKind = 1<<SentOutput | 1<<SentGradient | 1<<Output
	stage, kind, drop := a.Stage(), a.Kind(), a.Drop()
	e := OfKind(plan, stage, kind)
	ends := e.Ends & (1<<Gathered | 1<<Accumulator | 1<<Output)
	for place, bit := range drops {
		// DropSent stands for two kinds: of the kinds in byKind, only the one that this kind of action ends counts.
		if drop&bit != 0 {
			ends |= 1 << place & (e.Ends | ^Set(byKind))
		}
	}
	e.Ends = ends
	e.Due |= ends & (1<<ForwardWeights | 1<<BackwardWeights)
	if drop&schedule.DropParts != 0 {
		e.Parts = plan.Parts[stage][kind]
	}
	return e
}

// Upto returns the index in the batch (Plan.BatchIndex) of the last entry that has been pulled when an action
// needs the entry with the given index, with the given look-ahead.
func Upto(plan *schedule.Plan, index, lookAhead int) int {
	return min(index+min(lookAhead, plan.Microbatches), plan.Microbatches-1)
}
