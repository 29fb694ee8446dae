package passes

import "github.com/weir-ml/weir/schedule"

// Need is a dependency of an action. If Or is not None, an action of either kind satisfies it.
type Need struct {
	Kind, Or schedule.Kind
	On       int8 // -1 for the previous slice, 1 for the next slice, else 0
	Remote   bool // on another rank, in a plan without transfers
	Why      reason
	Stage    int
}

// reason is the reason why an action depends on another one.
type reason uint8

const (
	inputReason reason = iota
	inputSentReason
	savedReason
	gradReason
	gradSentReason
	outputReason
	ownGradReason
	waitReason
	sliceBeforeReason
	sliceBehindReason
)

// Reasons describes an action by its relation to the action that depends on it.
var Reasons = [...]string{
	inputReason:       "whose output it reads",
	inputSentReason:   "which brings its input",
	savedReason:       "which saves the state it takes",
	gradReason:        "whose gradient it reads",
	gradSentReason:    "which brings the gradient of its output",
	outputReason:      "whose output it sends",
	ownGradReason:     "whose gradient it sends",
	waitReason:        "which it waits for",
	sliceBeforeReason: "the slice before it",
	sliceBehindReason: "the slice after it",
}

// Needs appends the dependencies of a computation, a send or a wait of a stage to the list. They are the
// same for every microbatch, except that the first and last slices of a sequence lack a neighbor.
func (o *Outline) Needs(list []Need, stage int, kind schedule.Kind) []Need {
	sliced := o.Plan.Slices > 1
	switch kind {
	case schedule.F:
		switch {
		case o.IsFirst(stage):
		case o.Crosses(stage-1) && o.Transfers:
			list = append(list, Need{Kind: schedule.RecvF, Stage: stage, Why: inputSentReason})
		default:
			list = append(list, Need{Kind: schedule.F, Stage: stage - 1, Remote: o.Crosses(stage - 1), Why: inputReason})
		}
		if sliced {
			list = append(list, Need{Kind: schedule.F, Stage: stage, On: -1, Why: sliceBeforeReason})
		}
	case schedule.B, schedule.I:
		list = append(list, Need{Kind: schedule.F, Stage: stage, Why: savedReason})
		switch {
		case o.IsLast(stage):
		case o.Crosses(stage) && o.Transfers:
			list = append(list, Need{Kind: schedule.RecvB, Stage: stage, Why: gradSentReason})
		default:
			list = append(list, Need{Kind: schedule.B, Or: schedule.I, Stage: stage + 1, Remote: o.Crosses(stage), Why: gradReason})
		}
		if sliced {
			list = append(list, Need{Kind: schedule.B, Or: schedule.I, Stage: stage, On: 1, Why: sliceBehindReason})
		}
	case schedule.W:
		list = append(list, Need{Kind: schedule.I, Stage: stage, Why: savedReason})
	case schedule.SendF:
		list = append(list, Need{Kind: schedule.F, Stage: stage, Why: outputReason})
	case schedule.SendB:
		list = append(list, Need{Kind: schedule.B, Or: schedule.I, Stage: stage, Why: ownGradReason})
	case schedule.WaitF:
		list = append(list, Need{Kind: schedule.SendF, Stage: stage, Why: waitReason})
	case schedule.WaitB:
		list = append(list, Need{Kind: schedule.SendB, Stage: stage, Why: waitReason})
	}
	return list
}

// Neighbour returns the previous (-1) or next (1) slice of a slice, and whether it belongs to the same
// sequence.
func (o *Outline) Neighbour(mb int64, on int8) (int64, bool) {
	other, k := mb+int64(on), int64(max(o.Plan.Slices, 1))
	return other, other/k == mb/k
}

// DependsOn reports whether an action depends on another one directly.
func (o *Outline) DependsOn(a, other schedule.Action) bool {
	var list [3]Need
	for _, n := range o.Needs(list[:0], a.Stage(), a.Kind()) {
		mb, ok := int64(a.Microbatch()), true
		if n.On != 0 {
			mb, ok = o.Neighbour(mb, n.On)
		}
		if ok && (other.Kind() == n.Kind || other.Kind() == n.Or) && other.Stage() == n.Stage && int64(other.Microbatch()) == mb {
			return true
		}
	}
	return false
}
