package schedule

// need is an action that another one needs: of either kind, where there are two.
type need struct {
	kind, or Kind
	on       int8 // microbatches on: -1 is the slice before, 1 the slice behind
	remote   bool // on another rank, and nothing is sent: the rank waits for it
	why      reason
	stage    int
}

// reason says what an action needs another one for.
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

var reasons = [...]string{
	inputReason:       "whose output it reads",
	inputSentReason:   "which brings its input",
	savedReason:       "which saves what it takes",
	gradReason:        "whose gradient it reads",
	gradSentReason:    "which brings the gradient of its output",
	outputReason:      "whose output it sends",
	ownGradReason:     "whose gradient it sends",
	waitReason:        "which it waits for",
	sliceBeforeReason: "the slice before it",
	sliceBehindReason: "the slice behind it",
}

// needs appends to the list what a computation, a send or a wait of a stage needs,
// the same for every microbatch; what was there first comes first.
func (o *outline) needs(list []need, stage int, kind Kind) []need {
	sliced := o.plan.Slices > 1
	switch kind {
	case F:
		switch {
		case o.isFirst(stage):
		case o.crosses(stage-1) && o.transfers:
			list = append(list, need{kind: RecvF, stage: stage, why: inputSentReason})
		default:
			list = append(list, need{kind: F, stage: stage - 1, remote: o.crosses(stage - 1), why: inputReason})
		}
		if sliced {
			list = append(list, need{kind: F, stage: stage, on: -1, why: sliceBeforeReason})
		}
	case B, I:
		list = append(list, need{kind: F, stage: stage, why: savedReason})
		switch {
		case o.isLast(stage):
		case o.crosses(stage) && o.transfers:
			list = append(list, need{kind: RecvB, stage: stage, why: gradSentReason})
		default:
			list = append(list, need{kind: B, or: I, stage: stage + 1, remote: o.crosses(stage), why: gradReason})
		}
		if sliced {
			list = append(list, need{kind: B, or: I, stage: stage, on: 1, why: sliceBehindReason})
		}
	case W:
		list = append(list, need{kind: I, stage: stage, why: savedReason})
	case SendF:
		list = append(list, need{kind: F, stage: stage, why: outputReason})
	case SendB:
		list = append(list, need{kind: B, or: I, stage: stage, why: ownGradReason})
	case WaitF:
		list = append(list, need{kind: SendF, stage: stage, why: waitReason})
	case WaitB:
		list = append(list, need{kind: SendB, stage: stage, why: waitReason})
	}
	return list
}

// neighbour returns the slice that is so many on (-1 or 1), and whether it is of the
// same sequence.
func (o *outline) neighbour(mb int64, on int8) (int64, bool) {
	other, k := mb+int64(on), int64(max(o.plan.Slices, 1))
	return other, other/k == mb/k
}

// dependsOn reports whether an action of a stage and a microbatch needs another one
// at first hand.
func (o *outline) dependsOn(a, other Action) bool {
	var list [3]need
	for _, n := range o.needs(list[:0], a.Stage(), a.Kind()) {
		mb, ok := int64(a.Microbatch()), true
		if n.on != 0 {
			mb, ok = o.neighbour(mb, n.on)
		}
		if ok && (other.Kind() == n.kind || other.Kind() == n.or) && other.Stage() == n.stage && int64(other.Microbatch()) == mb {
			return true
		}
	}
	return false
}
