package check

import (
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/internal/passes"
)

// checkPairing proves that messages are received from each link in the order in which they were
// sent. It skips links whose numbers of sends and receives differ, which the census has reported.
func (c *Checker) checkPairing() {
	if !c.Transfers {
		return
	}
	l := passes.NewLinks(&c.Outline)
	uneven := make([]bool, len(l.From))
	for e, link := range l.Of {
		if link >= 0 {
			uneven[link] = uneven[link] || c.uneven[e]
		}
	}
	traffic := passes.Split(c.Plan.Programs, 2*len(l.From), func(a schedule.Action) int { // by link, its sends and its receives
		e := passes.Edge(a)
		switch {
		case e < 0 || !c.allows(a.Stage(), a.Kind()):
			return -1
		case a.Kind() == schedule.RecvF || a.Kind() == schedule.RecvB:
			return 2*l.Of[e] + 1
		}
		return 2 * l.Of[e]
	})
	for i := range l.From {
		if !uneven[i] && c.compared <= c.Allowance {
			c.pair(passes.NewCursor(traffic[2*i], 0), passes.NewCursor(traffic[2*i+1], 0), func(receive schedule.Action) schedule.Action {
				return passes.Sent(passes.Edge(receive), int64(receive.Microbatch()))
			}, func(receive, got, wants schedule.Action) {
				c.fault(findAction(c.Plan, l.To[i], receive), Pairing, "", "receives %v, which rank %d sent before %v; send and receive in the same order.", got, l.From[i], wants)
			})
		}
	}
}

// maxCrossed is the maximum number of faults that a call of pair reports.
const maxCrossed = 4

// pair compares the sends and receives of a link, or the starts of copies and the waits for them.
// origin returns the send that belongs to a receive. pair calls crosses for a receive that meets a
// different send, but only for the first of several consecutive ones, and at most maxCrossed times. If
// both sides agree over whole repeats that advance both by the same number of microbatches, they agree in
// all further repeats of the two segments.
func (c *Checker) pair(sends, receives passes.Cursor, origin func(receive schedule.Action) schedule.Action, crosses func(receive, got, wants schedule.Action)) {
	crossed, before := 0, false
	agreed := 0 // the number of consecutive messages that agree, since either side entered its segment
	for {
		got, more := sends.Action()
		want, both := receives.Action()
		if !more || !both || crossed == maxCrossed {
			return
		}
		if c.compared++; c.compared > c.Allowance {
			c.undecided()
			return
		}
		agreed++
		if wants := origin(want); got != wants {
			if !before { // consecutive faults probably have one cause
				crossed++
				crosses(want, got, wants)
			}
			agreed = 0
		}
		before = agreed == 0
		x, y := sends.Segment, receives.Segment
		sends.Advance()
		receives.Advance()
		if x != sends.Segment || y != receives.Segment {
			agreed = 0
		} else if agreed > 0 && skip(&sends, &receives, agreed) {
			agreed = 0
		}
	}
}

// skip skips repeats on both sides if the last agreed messages cover whole repeats of both. It reports
// whether it skipped any.
func skip(sends, receives *passes.Cursor, agreed int) bool {
	x, y := &sends.Program[sends.Segment], &receives.Program[receives.Segment]
	if sends.Repeat == x.Repeat-1 || receives.Repeat == y.Repeat-1 {
		return false
	}
	sent, received := int(x.Len()), int(y.Len())
	messages := passes.LeastMultiple(sent, received)
	if agreed < messages {
		return false
	}
	a, b := messages/sent, messages/received
	n := min((x.Repeat-1-sends.Repeat)/a, (y.Repeat-1-receives.Repeat)/b)
	if a*x.Stride != b*y.Stride || n == 0 {
		return false
	}
	sends.Skip(n * a)
	receives.Skip(n * b)
	return true
}
