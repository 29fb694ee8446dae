package passes

import (
	"github.com/weir-ml/weir/schedule"
	"slices"
)

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
type Walk struct {
	Sets []Runs

	// Where the walk is; for what visits it.
	Segment, Index int
	repeat         int64
	Position       int64 // of the action in the expanded program
	// trial is set while a repeat far ahead is tried: a visit may use sets then,
	// but must have no other effect.
	Trial bool

	// every is what a stride must be a multiple of where visits look at a microbatch
	// modulo it, which is not linear; 0 is 1.
	Every int

	Log        *undo // where changes are noted; nil when nobody asks
	trace      []uint32
	past       []uint32 // the trace of the repeat that was walked last
	last, next undo
	Visited    int64 // actions, but for those of trials
	work, held int64
	Exhausted  bool // a limit was reached: the walk is incomplete
}

// The limits of a walk: the actions that it visits, where moving many runs of a
// scattered set counts as well, and the runs that it holds at once.
const (
	MaxWork = 1 << 28
	maxHeld = 1 << 23
	// maxBranches bounds the branches that are noted of a repeat; one of more is not
	// leapt over.
	maxBranches = 1 << 22
)

// visitor is what a walk calls.
type visitor interface {
	// visit is called for each action that the walk does not leap over, with the
	// microbatch that it is for in this repeat.
	Visit(a schedule.Action, mb int64)
	// repeats is called with n after a repeat that stands for n repeats: itself,
	// and then once more for those that are leapt over because they are like it.
	Repeats(n int64)
}

// newWalk returns a walk over this many sets, all empty.
func NewWalk(sets int) Walk {
	w := Walk{Sets: make([]Runs, sets)}
	w.last.stamp, w.next.stamp = make([]uint32, sets), make([]uint32, sets)
	return w
}

// program walks all segments. Reverse walks them from the last action to the
// first.
func (w *Walk) Program(segments []schedule.Segment, reverse bool, v visitor) {
	if reverse {
		for i, segment := range slices.Backward(segments) {
			w.Segment = i
			w.walkSegment(backwards(segment), v)
		}
		return
	}
	start := int64(0)
	for i, segment := range segments {
		w.Segment, w.Position = i, start
		w.walkSegment(segment, v)
		start += int64(len(segment.Body)) * int64(segment.Repeat)
	}
}

// backwards returns the segment that runs the same actions in reverse.
func backwards(s schedule.Segment) schedule.Segment {
	body := make([]schedule.Action, len(s.Body))
	for i, a := range s.Body {
		body[len(body)-1-i] = a.Shift((s.Repeat - 1) * s.Stride)
	}
	return schedule.Segment{Body: body, Repeat: s.Repeat, Stride: -s.Stride}
}

func (w *Walk) walkSegment(s schedule.Segment, v visitor) {
	start, total := w.Position, int64(s.Repeat)
	try := int64(1) // the next repeat after which a leap is tried; the first one differs from the second
	if s.Stride%max(w.Every, 1) != 0 {
		try = total
	}
	for r := int64(0); r < total && !w.Exhausted; r++ {
		record := r >= try && total-r > 3
		if record {
			w.record(&w.last)
		}
		w.Position = start + r*int64(len(s.Body))
		w.walkRepeat(s, r, v)
		w.Log = nil
		v.Repeats(1)
		if !record {
			continue
		}
		if n := w.leap(s, r, v); n > 0 {
			v.Repeats(n)
			r += n
			try = r + 1
		} else {
			try = 2 * r
		}
	}
}

func (w *Walk) walkRepeat(s schedule.Segment, r int64, v visitor) {
	w.repeat = r
	shift, start := r*int64(s.Stride), w.Position
	for i, a := range s.Body {
		w.Index, w.Position = i, start+int64(i)
		mb := int64(a.Microbatch())
		if shift != 0 && !a.Kind().OfStage() {
			mb += shift
		}
		v.Visit(a, mb)
		if w.work++; w.work > MaxWork || w.held > maxHeld {
			w.Exhausted = true
			return
		}
	}
	w.Position = start + int64(len(s.Body))
	if !w.Trial {
		w.Visited += int64(len(s.Body))
	}
}

// leap moves the sets from after repeat r, which was recorded, to before a later
// repeat, and returns the number of repeats between them: 0 where there is no
// leap. It leaves at least two repeats to be walked.
func (w *Walk) leap(s schedule.Segment, r int64, v visitor) int64 {
	if !w.slopes() {
		return 0
	}
	w.trace, w.past = w.past, w.trace
	for n := int64(s.Repeat) - 3 - r; n > 0 && !w.Exhausted; n /= 2 {
		if !w.move(n) {
			continue
		}
		w.record(&w.next)
		w.Trial = true
		w.walkRepeat(s, r+1+n, v)
		w.Trial, w.Log = false, nil
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
func (w *Walk) slopes() bool {
	for _, e := range w.last.entries {
		set, before := w.Sets[e.set], w.last.runs[e.from:e.to]
		if len(set) != len(before) {
			return false
		}
		for i, now := range set {
			before[i] = Run{now.Lo - before[i].Lo, now.Hi - before[i].Hi}
		}
	}
	return true
}

// alike reports whether a trial took the branches of the past one and moved every
// edge as far.
func (w *Walk) alike() bool {
	if len(w.trace) > maxBranches || !slices.Equal(w.trace, w.past) || len(w.next.entries) != len(w.last.entries) {
		return false
	}
	for k, e := range w.next.entries {
		slope := w.last.entries[k]
		set, before, slopes := w.Sets[e.set], w.next.runs[e.from:e.to], w.last.runs[slope.from:slope.to]
		if e.set != slope.set || len(set) != len(before) || len(set) != len(slopes) {
			return false
		}
		for i, now := range set {
			if now.Lo-before[i].Lo != slopes[i].Lo || now.Hi-before[i].Hi != slopes[i].Hi {
				return false
			}
		}
	}
	return true
}

// move moves the edges of the sets by n repeats. Where that would make an edge
// pass or touch another one it changes nothing and reports false.
func (w *Walk) move(n int64) bool {
	for k, e := range w.last.entries {
		set, slope := w.Sets[e.set], w.last.runs[e.from:e.to]
		for i := range set {
			set[i].Lo += n * slope[i].Lo
			set[i].Hi += n * slope[i].Hi
		}
		for i := range set {
			if set[i].Lo >= set[i].Hi || i > 0 && set[i-1].Hi >= set[i].Lo {
				for _, e := range w.last.entries[:k+1] {
					set, slope := w.Sets[e.set], w.last.runs[e.from:e.to]
					for i := range set {
						set[i].Lo -= n * slope[i].Lo
						set[i].Hi -= n * slope[i].Hi
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
	runs    []Run
	stamp   []uint32 // by set: the epoch in which it was noted
	epoch   uint32
}

type undoEntry struct{ set, from, to int }

// record begins to note branches and what changes.
func (w *Walk) record(u *undo) {
	u.entries, u.runs = u.entries[:0], u.runs[:0]
	u.epoch++
	w.Log, w.trace = u, w.trace[:0]
}

// restore makes the sets what they were when record was called.
func (w *Walk) restore(u *undo) {
	for _, e := range u.entries {
		w.held += int64(e.to - e.from - len(w.Sets[e.set]))
		w.Sets[e.set] = append(w.Sets[e.set][:0], u.runs[e.from:e.to]...)
	}
}

// save notes a set that is about to change.
func (w *Walk) save(set int) {
	if u := w.Log; u != nil && u.stamp[set] != u.epoch {
		u.stamp[set] = u.epoch
		from := len(u.runs)
		u.runs = append(u.runs, w.Sets[set]...)
		u.entries = append(u.entries, undoEntry{set, from, len(u.runs)})
		w.work += int64(len(u.runs)-from) / 16
	}
}

// branch notes which way an operation went.
func (w *Walk) branch(i int, e edit) {
	if w.Log != nil && len(w.trace) <= maxBranches {
		w.trace = append(w.trace, uint32(i)*uint32(numEdits)+uint32(e))
	}
}

// note notes what a decision came to, and returns it.
func (w *Walk) Note(yes bool) bool {
	e := outside
	if yes {
		e = inside
	}
	w.branch(0, e)
	return yes
}

// charge counts what an operation did to a set, from run i on.
func (w *Walk) charge(set, i int, e edit, runs int) {
	w.held += int64(len(w.Sets[set]) - runs)
	if e == single || e == between || e == inside {
		w.work += int64((len(w.Sets[set]) - i) / 16) // it moved them
	}
}

// within reports whether a microbatch is one of a run.
func (w *Walk) Within(mb int64, r Run) bool {
	e := outside
	switch {
	case mb < r.Lo:
		e = below
	case mb < r.Hi:
		e = inside
	}
	w.branch(0, e)
	return e == inside
}

// has reports whether a microbatch is in a set.
func (w *Walk) Has(set int, mb int64) bool {
	s := w.Sets[set]
	if w.Log == nil && len(s) == 1 {
		return s[0].Lo <= mb && mb < s[0].Hi
	}
	i, e := s.at(mb), outside
	if i < len(s) && s[i].Lo <= mb {
		e = inside
	}
	w.branch(i, e)
	return e == inside
}

// add puts a microbatch into a set and reports whether it was not there.
func (w *Walk) Add(set int, mb int64) bool {
	if w.Log == nil {
		if added, plainly := w.Sets[set].extend(mb); plainly {
			return added
		}
	}
	w.save(set)
	runs := len(w.Sets[set])
	i, e := w.Sets[set].add(mb)
	w.branch(i, e)
	w.charge(set, i, e, runs)
	return e != inside
}

// remove takes a microbatch out of a set and reports whether it was there.
func (w *Walk) Remove(set int, mb int64) bool {
	if s := w.Sets[set]; w.Log == nil && s.shorten(mb) {
		return true
	}
	w.save(set)
	runs := len(w.Sets[set])
	i, e := w.Sets[set].remove(mb)
	w.branch(i, e)
	w.charge(set, i, e, runs)
	return e != outside
}
