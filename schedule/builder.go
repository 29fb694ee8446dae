package schedule

import "slices"

// A Builder writes a program action by action. It immediately merges actions that repeat with a fixed
// stride of microbatches into segments, so that it never stores more than the program's segments. It
// finds periods of up to 128 actions; a caller that knows of a longer period can use Repeat. No
// body ends with a joined action. The zero Builder is ready for use.
type Builder struct {
	program []Segment
	written int64    // the number of actions in program
	tail    []Action // actions that are not in a segment yet; a run begins in it
	run     run
	nested  nested // the last segment, after which tail is empty, if it is a loop that may continue
}

// run describes a repeating body, which extends from a position in the tail to its end.
type run struct {
	from, period int // the start of the body in the tail, and its length, which is 0 if there is no run
	repeats      int // the number of complete repeats
	next         int // the index in the body of the action that would continue the run
	stride       int
	known        bool // the run becomes a segment even if that saves few actions
}

// nested is a repeated part that contains segments. The loop continues as long as each appended action is the one that
// next returns.
type nested struct {
	Segment       // Repeat is 0 if there is no loop
	written int64 // the number of actions of an incomplete repeat

	// The action that would continue the loop: the index of the inner segment, that segment's repeat, and the index in
	// its body, whose microbatches are shifted.
	segment, repeat, index int
	inner                  []Action
	shift                  int
}

// next returns the action that would continue the loop.
func (l *nested) next() Action { return l.inner[l.index].Shift(l.shift) }

// advance counts the next action.
func (l *nested) advance() {
	l.written++
	if l.index++; l.index < len(l.inner) {
		return
	}
	l.index = 0
	if l.repeat++; l.repeat == l.Inner[l.segment].Repeat {
		l.repeat, l.segment = 0, l.segment+1
	}
	if l.segment == len(l.Inner) {
		l.written, l.segment, l.Repeat = 0, 0, l.Repeat+1
	}
	l.enter()
}

// enter sets the body and its shift for the current position.
func (l *nested) enter() {
	s := &l.Inner[l.segment]
	l.inner, l.shift = s.Body, l.repeat*s.Stride+l.Repeat*l.Stride
}

const (
	// maxPeriod is the longest period that a Builder searches for. It covers the computations of a
	// microbatch on a rank with several stages, with their sends, receives and waits.
	maxPeriod = 128
	// minSaved is the number of actions that a run must save to become a segment. Short programs
	// are easier to read without segments.
	minSaved = 48
	// minNested is the number of actions that the runs of a repeated part must save to stay
	// segments in a loop of loops. If they save fewer, the part is written out as one body.
	minNested = 1 << 7
)

// Len returns the number of written actions.
func (b *Builder) Len() int64 {
	return b.written + b.nested.Len()*int64(b.nested.Repeat) + b.nested.written +
		int64(len(b.tail)) + int64(b.run.period)*int64(max(b.run.repeats, 1)-1) + int64(b.run.next)
}

// Append writes an action.
func (b *Builder) Append(a Action) {
	if b.nested.Repeat > 0 {
		if a == b.nested.next() {
			b.nested.advance()
			return
		}
		b.endNested()
	}
	if r := &b.run; r.period > 0 {
		if a == b.tail[r.from+r.next].Shift(r.repeats*r.stride) {
			if r.next++; r.next == r.period {
				r.next, r.repeats = 0, r.repeats+1
			}
			return
		}
		b.stop()
	}
	b.tail = append(b.tail, a)
	b.search()
}

// Segment writes the actions of a segment. If it continues the last segment, the two are merged.
func (b *Builder) Segment(s Segment) {
	since := b.Len()
	expand(s.Inside(), 0, func(a Action) bool { b.Append(a); return true })
	b.Repeat(since, s.Repeat-1, s.Stride)
}

// search begins a run if the tail ends with a body and its repeats. A short body must repeat several
// times, because a longer body may contain short runs.
func (b *Builder) search() {
	const few, still = 4, 1<<MbShift - 1 // still masks the bits that are equal in all repeats
	n := len(b.tail)
	a := b.tail[n-1]
	if a.Joined() || a.Kind().OfStage() || n > 8*maxPeriod && n%7 != 0 {
		return // a run may begin a little later, and its body then ends with another action
	}
periods:
	for p := 1; p <= min(n/2, maxPeriod); p++ {
		if (a^b.tail[n-1-p])&still != 0 || (b.tail[n-2]^b.tail[max(n-2-p, 0)])&still != 0 {
			continue
		}
		again := max(p, (few+p-1)/p*p) // the number of actions that must repeat earlier ones
		from := n - again - p
		stride := a.Microbatch() - b.tail[n-1-p].Microbatch()
		if from < 0 || stride == 0 || from > 0 && b.tail[from-1].Joined() {
			continue
		}
		for i := n - 1; i >= n-again; i-- {
			if b.tail[i] != b.tail[i-p].Shift(stride) {
				continue periods
			}
		}
		b.run = run{from: from, period: p, repeats: 1 + again/p, stride: stride}
		b.tail = b.tail[:from+p]
		return
	}
}

// endNested turns a loop into a segment, and writes out its incomplete repeat.
func (b *Builder) endNested() {
	l := b.nested
	if b.nested = (nested{}); l.Repeat == 0 {
		return
	}
	b.add(l.Segment)
	expand(l.Inner, l.Repeat*l.Stride, func(a Action) bool {
		if l.written--; l.written >= 0 {
			b.Append(a)
		}
		return l.written > 0
	})
}

// stop ends a loop or a run. A run becomes a segment if it is known or if this saves enough actions; otherwise
// all its repeats are written out in the tail. An incomplete repeat is always written out.
func (b *Builder) stop() {
	b.endNested()
	r := b.run
	if b.run = (run{}); r.period == 0 {
		return
	}
	body := b.tail[r.from:]
	at := func(i int) Action { return body[i%r.period].Shift(i / r.period * r.stride) }
	whole := r.period * r.repeats
	if whole-r.period < minSaved && !r.known {
		for i := r.period; i < whole+r.next; i++ {
			b.tail = append(b.tail, at(i))
		}
		return
	}
	s := Segment{Body: slices.Clone(body), Repeat: r.repeats, Stride: r.stride}
	b.tail = b.tail[:r.from]
	b.flush()
	b.add(s)
	body = s.Body
	for i := whole; i < whole+r.next; i++ {
		b.tail = append(b.tail, at(i))
	}
}

// flush turns the tail into a segment.
func (b *Builder) flush() {
	if len(b.tail) > 0 {
		b.add(Segment{Body: slices.Clone(b.tail), Repeat: 1})
		b.tail = b.tail[:0]
	}
}

// add appends a segment. If neither it nor the last segment repeats, the two are merged.
func (b *Builder) add(s Segment) {
	b.written += s.Len() * int64(s.Repeat)
	if n := len(b.program); n > 0 && s.Repeat == 1 && b.program[n-1].Repeat == 1 {
		b.program[n-1].Body = append(b.program[n-1].Body, s.Body...)
		return
	}
	b.program = append(b.program, s)
}

// Repeat repeats all actions after the first since actions of the program n more times, each time shifted by
// stride microbatches.
func (b *Builder) Repeat(since int64, n, stride int) {
	length := b.Len() - since
	if length == 0 || n == 0 {
		return
	}
	if r := &b.run; r.period > 0 && since >= b.written+int64(r.from) && length%int64(r.period) == 0 && int(length)/r.period*r.stride == stride {
		r.repeats += n * (int(length) / r.period)
		return
	}
	if l := &b.nested; l.Repeat > 0 && since >= b.written && length%l.Len() == 0 && int(length/l.Len())*l.Stride == stride {
		l.Repeat += n * int(length/l.Len())
		l.enter()
		return
	}
	taken := b.take(length)
	written := int64(0)
	for _, s := range taken {
		written += int64(len(s.Body))
	}
	if length-written >= minNested {
		b.nested = nested{Segment: Segment{Inner: taken, Repeat: n + 1, Stride: stride}}
		b.nested.enter()
		return
	}
	body := make([]Action, 0, length)
	expand(taken, 0, func(a Action) bool { body = append(body, a); return true })
	repeats := n + 1
	for ; b.endsWith(body, -stride); repeats++ {
		body = b.take(int64(len(body)))[0].Body
	}
	b.tail = append(b.tail, body...)
	b.run = run{period: len(body), repeats: repeats, stride: stride, known: true}
}

// endsWith reports whether the last segment runs once and ends with the actions of the body, with by
// added to their microbatches.
func (b *Builder) endsWith(body []Action, by int) bool {
	if len(b.program) == 0 {
		return false
	}
	last := b.program[len(b.program)-1]
	rest := len(last.Body) - len(body)
	if last.Repeat > 1 || rest < 0 || rest > 0 && last.Body[rest-1].Joined() {
		return false
	}
	for i, a := range body {
		if last.Body[rest+i] != a.Shift(by) {
			return false
		}
	}
	return true
}

// take removes the last n actions from the program and returns them.
func (b *Builder) take(n int64) []Segment {
	b.stop()
	b.flush()
	b.written -= n
	var taken []Segment
	for i := len(b.program) - 1; n > 0; i-- {
		s := b.program[i]
		b.program = b.program[:i]
		if s.Inner != nil {
			s = flatten([]Segment{s})[0]
		}
		before, after := s.cutAt(max(0, s.Len()*int64(s.Repeat)-n))
		b.program = append(b.program, before...)
		taken = append(after, taken...)
		n -= s.Len() * int64(s.Repeat)
	}
	return taken
}

// Program returns the written program and resets the builder.
func (b *Builder) Program() []Segment {
	b.stop()
	b.flush()
	program := b.program
	*b = Builder{tail: b.tail}
	return program
}

// cutAt splits a segment without inner segments after its first n actions.
func (s Segment) cutAt(n int64) (before, after []Segment) {
	whole, part := int(n/int64(len(s.Body))), int(n%int64(len(s.Body)))
	add := func(list []Segment, first, repeats, from, to int) []Segment {
		if repeats < 1 || from == to {
			return list
		}
		piece := Segment{Repeat: repeats, Stride: s.Stride}
		if repeats == 1 {
			piece.Stride = 0
		}
		for _, a := range s.Body[from:to] {
			piece.Body = append(piece.Body, a.Shift(first*s.Stride))
		}
		return append(list, piece)
	}
	before = add(add(nil, 0, whole, 0, len(s.Body)), whole, 1, 0, part)
	if part == 0 {
		return before, add(nil, whole, s.Repeat-whole, 0, len(s.Body))
	}
	return before, add(add(nil, whole, 1, part, len(s.Body)), whole+1, s.Repeat-whole-1, 0, len(s.Body))
}
