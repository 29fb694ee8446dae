package schedule

import "slices"

// A walk takes a rank's program action by action and keeps sets of microbatches
// on the way: what is done, what is dropped, what is in flight. It leaps over
// repeats that cannot differ, so that it costs the same whatever their number.
//
// When it may leap: it records the branches of a repeat, each of which compares a
// microbatch with an edge of a set, and how far every edge moved in it. It supposes
// that everything keeps moving like that and tries a repeat far ahead on that
// supposition. Where that one takes the same branches and moves every edge as far
// again, all repeats between do: what a repeat compares is linear in its number, and
// so is what it leaves behind, and linear functions that agree about a branch, or
// with each other, in two places agree in all between. If not, a leap half as long
// is tried. Whatever has no such form is walked in full, up to a limit of work.
//
// A set's width is linear in the repeat as well, so its largest value is found in
// the first or the last repeat of a leap, and both of these are walked.
type walk struct {
	sets []runs

	// Where the walk is; for what visits it.
	segment, index int
	repeat         int64
	position       int64 // of the action in the expanded program
	// trial is set while a repeat far ahead is tried: a visit may use sets then,
	// but must have no other effect.
	trial bool

	// every is what a stride must be a multiple of where visits look at a microbatch
	// modulo it, which is not linear; 0 is 1.
	every int

	log        *undo // where changes are noted; nil when nobody asks
	trace      []uint32
	past       []uint32 // the trace of the repeat that was walked last
	last, next undo
	visited    int64 // actions, but for those of trials
	work, held int64
	exhausted  bool // a limit was reached: the walk is incomplete
}

// The limits of a walk: the actions that it visits, where moving many runs of a
// scattered set counts as well, and the runs that it holds at once.
const (
	maxWork = 1 << 28
	maxHeld = 1 << 23
	// maxBranches bounds the branches that are noted of a repeat; one of more is not
	// leapt over.
	maxBranches = 1 << 22
)

// visitor is what a walk calls.
type visitor interface {
	// visit is called for each action that the walk does not leap over, with the
	// microbatch that it is for in this repeat.
	visit(a Action, mb int64)
	// repeats is called with n after a repeat that stands for n repeats: itself,
	// and then once more for those that are leapt over because they are like it.
	repeats(n int64)
}

// newWalk returns a walk over this many sets, all empty.
func newWalk(sets int) walk {
	w := walk{sets: make([]runs, sets)}
	w.last.stamp, w.next.stamp = make([]uint32, sets), make([]uint32, sets)
	return w
}

// program walks all segments. Reverse walks them from the last action to the
// first.
func (w *walk) program(segments []Segment, reverse bool, v visitor) {
	if reverse {
		for i, segment := range slices.Backward(segments) {
			w.segment = i
			w.walkSegment(backwards(segment), v)
		}
		return
	}
	start := int64(0)
	for i, segment := range segments {
		w.segment, w.position = i, start
		w.walkSegment(segment, v)
		start += int64(len(segment.Body)) * int64(segment.Repeat)
	}
}

// backwards returns the segment that runs the same actions in reverse.
func backwards(s Segment) Segment {
	body := make([]Action, len(s.Body))
	for i, a := range s.Body {
		body[len(body)-1-i] = a.Shift((s.Repeat - 1) * s.Stride)
	}
	return Segment{Body: body, Repeat: s.Repeat, Stride: -s.Stride}
}

func (w *walk) walkSegment(s Segment, v visitor) {
	start, total := w.position, int64(s.Repeat)
	try := int64(1) // the next repeat after which a leap is tried; the first one differs from the second
	if s.Stride%max(w.every, 1) != 0 {
		try = total
	}
	for r := int64(0); r < total && !w.exhausted; r++ {
		record := r >= try && total-r > 3
		if record {
			w.record(&w.last)
		}
		w.position = start + r*int64(len(s.Body))
		w.walkRepeat(s, r, v)
		w.log = nil
		v.repeats(1)
		if !record {
			continue
		}
		if n := w.leap(s, r, v); n > 0 {
			v.repeats(n)
			r += n
			try = r + 1
		} else {
			try = 2 * r
		}
	}
}

func (w *walk) walkRepeat(s Segment, r int64, v visitor) {
	w.repeat = r
	shift, start := r*int64(s.Stride), w.position
	for i, a := range s.Body {
		w.index, w.position = i, start+int64(i)
		mb := int64(a.Microbatch())
		if shift != 0 && !a.Kind().ofStage() {
			mb += shift
		}
		v.visit(a, mb)
		if w.work++; w.work > maxWork || w.held > maxHeld {
			w.exhausted = true
			return
		}
	}
	w.position = start + int64(len(s.Body))
	if !w.trial {
		w.visited += int64(len(s.Body))
	}
}

// leap moves the sets from after repeat r, which was recorded, to before a later
// repeat, and returns the number of repeats between them: 0 where there is no
// leap. It leaves at least two repeats to be walked.
func (w *walk) leap(s Segment, r int64, v visitor) int64 {
	if !w.slopes() {
		return 0
	}
	w.trace, w.past = w.past, w.trace
	for n := int64(s.Repeat) - 3 - r; n > 0 && !w.exhausted; n /= 2 {
		if !w.move(n) {
			continue
		}
		w.record(&w.next)
		w.trial = true
		w.walkRepeat(s, r+1+n, v)
		w.trial, w.log = false, nil
		same := w.alike()
		w.restore(&w.next)
		if same {
			return n
		}
		w.move(-n)
	}
	return 0
}

// slopes replaces what the last repeat noted of the sets before it by how far
// each edge has moved since. It reports false where a set has more or fewer runs.
func (w *walk) slopes() bool {
	for _, e := range w.last.entries {
		set, before := w.sets[e.set], w.last.runs[e.from:e.to]
		if len(set) != len(before) {
			return false
		}
		for i, now := range set {
			before[i] = run{now.lo - before[i].lo, now.hi - before[i].hi}
		}
	}
	return true
}

// alike reports whether a trial took the branches of the past one and moved every
// edge as far.
func (w *walk) alike() bool {
	if len(w.trace) > maxBranches || !slices.Equal(w.trace, w.past) || len(w.next.entries) != len(w.last.entries) {
		return false
	}
	for k, e := range w.next.entries {
		slope := w.last.entries[k]
		set, before, slopes := w.sets[e.set], w.next.runs[e.from:e.to], w.last.runs[slope.from:slope.to]
		if e.set != slope.set || len(set) != len(before) || len(set) != len(slopes) {
			return false
		}
		for i, now := range set {
			if now.lo-before[i].lo != slopes[i].lo || now.hi-before[i].hi != slopes[i].hi {
				return false
			}
		}
	}
	return true
}

// move moves the edges of the sets by n repeats. Where that would make an edge
// pass or touch another one it changes nothing and reports false.
func (w *walk) move(n int64) bool {
	for k, e := range w.last.entries {
		set, slope := w.sets[e.set], w.last.runs[e.from:e.to]
		for i := range set {
			set[i].lo += n * slope[i].lo
			set[i].hi += n * slope[i].hi
		}
		for i := range set {
			if set[i].lo >= set[i].hi || i > 0 && set[i-1].hi >= set[i].lo {
				for _, e := range w.last.entries[:k+1] {
					set, slope := w.sets[e.set], w.last.runs[e.from:e.to]
					for i := range set {
						set[i].lo -= n * slope[i].lo
						set[i].hi -= n * slope[i].hi
					}
				}
				return false
			}
		}
	}
	return true
}

// undo is what the sets were before a repeat, those that the repeat changed.
type undo struct {
	entries []undoEntry
	runs    []run
	stamp   []uint32 // by set: the epoch in which it was noted
	epoch   uint32
}

type undoEntry struct{ set, from, to int }

// record begins to note branches and what changes.
func (w *walk) record(u *undo) {
	u.entries, u.runs = u.entries[:0], u.runs[:0]
	u.epoch++
	w.log, w.trace = u, w.trace[:0]
}

// restore makes the sets what they were when record was called.
func (w *walk) restore(u *undo) {
	for _, e := range u.entries {
		w.held += int64(e.to - e.from - len(w.sets[e.set]))
		w.sets[e.set] = append(w.sets[e.set][:0], u.runs[e.from:e.to]...)
	}
}

// save notes a set that is about to change.
func (w *walk) save(set int) {
	if u := w.log; u != nil && u.stamp[set] != u.epoch {
		u.stamp[set] = u.epoch
		from := len(u.runs)
		u.runs = append(u.runs, w.sets[set]...)
		u.entries = append(u.entries, undoEntry{set, from, len(u.runs)})
		w.work += int64(len(u.runs)-from) / 16
	}
}

// branch notes which way an operation went.
func (w *walk) branch(i int, e edit) {
	if w.log != nil && len(w.trace) <= maxBranches {
		w.trace = append(w.trace, uint32(i)*uint32(numEdits)+uint32(e))
	}
}

// note notes what a decision came to, and returns it.
func (w *walk) note(yes bool) bool {
	e := outside
	if yes {
		e = inside
	}
	w.branch(0, e)
	return yes
}

// charge counts what an operation did to a set, from run i on.
func (w *walk) charge(set, i int, e edit, runs int) {
	w.held += int64(len(w.sets[set]) - runs)
	if e == single || e == between || e == inside {
		w.work += int64((len(w.sets[set]) - i) / 16) // it moved them
	}
}

// within reports whether a microbatch is one of a run.
func (w *walk) within(mb int64, r run) bool {
	e := outside
	switch {
	case mb < r.lo:
		e = below
	case mb < r.hi:
		e = inside
	}
	w.branch(0, e)
	return e == inside
}

// has reports whether a microbatch is in a set.
func (w *walk) has(set int, mb int64) bool {
	s := w.sets[set]
	if w.log == nil && len(s) == 1 {
		return s[0].lo <= mb && mb < s[0].hi
	}
	i, e := s.at(mb), outside
	if i < len(s) && s[i].lo <= mb {
		e = inside
	}
	w.branch(i, e)
	return e == inside
}

// add puts a microbatch into a set and reports whether it was not there.
func (w *walk) add(set int, mb int64) bool {
	if w.log == nil {
		if added, plainly := w.sets[set].extend(mb); plainly {
			return added
		}
	}
	w.save(set)
	runs := len(w.sets[set])
	i, e := w.sets[set].add(mb)
	w.branch(i, e)
	w.charge(set, i, e, runs)
	return e != inside
}

// remove takes a microbatch out of a set and reports whether it was there.
func (w *walk) remove(set int, mb int64) bool {
	if s := w.sets[set]; w.log == nil && s.shorten(mb) {
		return true
	}
	w.save(set)
	runs := len(w.sets[set])
	i, e := w.sets[set].remove(mb)
	w.branch(i, e)
	w.charge(set, i, e, runs)
	return e != outside
}
