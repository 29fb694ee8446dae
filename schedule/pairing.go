package schedule

// pairing proves that what is sent on a link is received in the same order, if there
// is as much of the one as of the other.
func (c *checker) pairing() {
	if !c.transfers {
		return
	}
	l := newLinks(&c.outline)
	uneven := make([]bool, len(l.from))
	for e, link := range l.of {
		if link >= 0 {
			uneven[link] = uneven[link] || c.uneven[e]
		}
	}
	sends, receives := c.traffic(l)
	for i := range sends {
		if !uneven[i] && c.compared <= maxWork {
			c.pairLink(l.from[i], l.to[i], cursor{program: sends[i]}, cursor{program: receives[i]})
		}
	}
}

// traffic returns by link what is sent and what is received, in the order of the
// programs of its ranks and in segments as they are.
func (c *checker) traffic(l links) (sends, receives [][]Segment) {
	sends, receives = make([][]Segment, len(l.from)), make([][]Segment, len(l.from))
	segments := 0
	sending, receiving := make([]int, len(l.from)), make([]int, len(l.from)) // the last segment, from 1
	for _, program := range c.plan.Programs {
		for _, s := range program {
			segments++
			for _, a := range s.Body {
				e := edge(a)
				if e < 0 || !c.allows(a.Stage(), a.Kind()) {
					continue
				}
				i := l.of[e]
				side, last := &sends[i], &sending[i]
				if a.Kind() == RecvF || a.Kind() == RecvB {
					side, last = &receives[i], &receiving[i]
				}
				if *last != segments {
					*last = segments
					*side = append(*side, Segment{Repeat: s.Repeat, Stride: s.Stride})
				}
				body := &(*side)[len(*side)-1].Body
				*body = append(*body, a.WithDrop(0).WithJoin(false))
			}
		}
	}
	return sends, receives
}

// maxCrossed is how many faults are found on a link.
const maxCrossed = 4

// pairLink compares the two lists of a link. Where as many messages as make whole
// repeats on both sides agree, and both sides have moved on by the same number of
// microbatches, all repeats agree that both sides have left.
func (c *checker) pairLink(from, to int, sends, receives cursor) {
	crossed, before := 0, false
	agreed := 0 // messages in a row, since both sides are in their segments
	for {
		got, more := sends.action()
		want, both := receives.action()
		if !more || !both || crossed == maxCrossed {
			return
		}
		if c.compared++; c.compared > maxWork {
			c.untold()
			return
		}
		agreed++
		if wants := sent(edge(want), int64(want.Microbatch())); got != wants {
			if !before { // what follows it in a row is likely to come from it
				crossed++
				c.fault(findAction(c.plan, to, want), Pairing, "", "receives %v, which rank %d sent before %v; send and receive in the same order.", got, from, wants)
			}
			agreed = 0
		}
		before = agreed == 0
		x, y := sends.segment, receives.segment
		sends.advance()
		receives.advance()
		if x != sends.segment || y != receives.segment {
			agreed = 0
		} else if agreed > 0 && skip(&sends, &receives, agreed) {
			agreed = 0
		}
	}
}

// skip goes over the repeats that are like those in which so many messages in a row
// have agreed, and reports whether it did.
func skip(sends, receives *cursor, agreed int) bool {
	x, y := &sends.program[sends.segment], &receives.program[receives.segment]
	if sends.repeat == x.Repeat-1 || receives.repeat == y.Repeat-1 {
		return false
	}
	messages := leastMultiple(len(x.Body), len(y.Body))
	if agreed < messages {
		return false
	}
	a, b := messages/len(x.Body), messages/len(y.Body)
	n := min((x.Repeat-1-sends.repeat)/a, (y.Repeat-1-receives.repeat)/b)
	if a*x.Stride != b*y.Stride || n == 0 {
		return false
	}
	sends.repeat += n * a
	receives.repeat += n * b
	return true
}
