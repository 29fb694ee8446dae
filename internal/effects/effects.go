package effects

import (
	"math/bits"

	"github.com/weir-ml/weir/schedule"
)

// Place is where buffers are held from one action to a later one.
type Place uint8

// The places, in the order in which an action ends what they hold.
const (
	None            Place = iota
	Part                  // a part of an entry
	Input                 // of a stage
	Gradient              // of a stage's output
	Saved                 // what a stage keeps for a later action of its own
	SentOutput            // of a stage, until the transfer is over
	SentGradient          // of a stage's input, until the transfer is over
	ForwardWeights        // copies of weights that a stage's forward reads
	BackwardWeights       // and those that its backward reads
	Gathered              // weights, from UNSHARD to RESHARD
	Output                // of a last stage: nothing reads it
	NumPlaces       = iota
)

// String names the place.
func (p Place) String() string {
	return [NumPlaces]string{"nothing", "entry part", "input", "gradient of output", "saved state", "sent output", "sent gradient of input",
		"copies of weights for the forward", "copies of weights for the backward", "gathered weights", "output"}[p]
}

// Set is a set of places.
type Set uint16

// First returns the first place of a set; s&(s-1) is the set without it.
func (s Set) First() Place { return Place(bits.TrailingZeros16(uint16(s))) }

// Effects is what an action does.
type Effects struct {
	Pulls bool
	To    Place // None where it hands nothing over
	Stage int32 // whose place To is
	Ends  Set   // as the drop bits of the action say
	Due   Set   // what ends by the kind of the action, whatever its bits say
	Last  bool  // it is the stage's last computation for the microbatch
	Parts uint64
}

// Of returns what an action does, of a plan that has its lifetimes.
func Of(plan *schedule.Plan, a schedule.Action) Effects {
	s, kind, drop, placement := a.Stage(), a.Kind(), a.Drop(), &plan.Placement
	e := Effects{Pulls: kind == schedule.F, Stage: int32(s), Last: plan.Ends(s, kind)}
	sent := SentOutput
	switch kind {
	case schedule.F:
		switch {
		case placement.Last(s):
			e.To, e.Due, e.Ends = Output, 1<<Output, 1<<Output
		case placement.Rank[s+1] == placement.Rank[s]:
			e.To, e.Stage = Input, e.Stage+1
		default:
			e.To = SentOutput
		}
		if !placement.First(s) {
			e.Due |= 1 << Input
		}
	case schedule.B, schedule.I:
		switch {
		case placement.First(s) || !plan.HasBackward(s-1):
		case placement.Rank[s-1] == placement.Rank[s]:
			e.To, e.Stage = Gradient, e.Stage-1
		default:
			e.To = SentGradient
		}
		if !placement.Last(s) {
			e.Due |= 1 << Gradient
		}
	case schedule.RecvF:
		e.To = Input
	case schedule.RecvB:
		e.To = Gradient
	case schedule.WaitF:
		e.Due = 1 << SentOutput
	case schedule.WaitB:
		sent, e.Due = SentGradient, 1<<SentGradient
	case schedule.Quantize:
		e.To = ForwardWeights
	case schedule.Unshard:
		e.To = Gathered
	case schedule.Reshard:
		e.Due, e.Ends = 1<<Gathered, 1<<Gathered
	}
	if e.Last {
		e.Due |= 1 << Saved
	}
	for _, end := range [...]struct {
		bit   schedule.Drop
		place Place
	}{
		{schedule.DropParts, Part}, {schedule.DropInput, Input}, {schedule.DropGrad, Gradient}, {schedule.DropSaved, Saved}, {schedule.DropSent, sent},
		{schedule.DropForwardWeights, ForwardWeights}, {schedule.DropBackwardWeights, BackwardWeights},
	} {
		if drop&end.bit != 0 {
			e.Ends |= 1 << end.place
		}
	}
	e.Due |= e.Ends & (1<<ForwardWeights | 1<<BackwardWeights)
	if drop&schedule.DropParts != 0 {
		e.Parts = plan.Parts[s][kind]
	}
	return e
}

// Upto returns the last item of the batch (Plan.Item) whose entry has come when an item
// is needed, given the look-ahead.
func Upto(plan *schedule.Plan, item, lookAhead int) int {
	return min(item+min(lookAhead, plan.Microbatches), plan.Microbatches-1)
}
