package passes

import (
	"slices"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/internal/repeats"
)

// A Walk visits the actions of a rank's program in order and contains sets of microbatches, such as
// finished or dropped microbatches or microbatches in flight. It skips repeats whose outcome follows
// from previous repeats (package repeats), so its cost does not depend on the number of these repeats.
//
// A visitor may compute the largest width of a set at an action, although the Walk skips repeats. From
// the repeat before the skipped ones to the last skipped one, this width is a linear function of the
// number of the repeat. If it decreases, the visited repeat before the skipped ones has the maximum. If
// it increases, the visitor relies on the visited repeat after them: that repeat begins with the set at
// the end of the last skipped one, and must add the next microbatches to it.
type Walk struct {
	Sets *repeats.Sets // the visitor changes them

	// The position of the walk, for the visitor to read.
	Body     []schedule.Action
	Segment  int   // the index of the body in the program, counting inner segments
	Index    int   // the index of the action in the body
	Position int64 // the position of the action in the program, counting every repeat
	Depth    int   // 1 within nested loops

	// Settings, which the caller may change before Program: Every and Repeats.
	//
	// Every is a number such that the results depend on microbatches modulo Every. Repeats are skipped
	// only if their stride is a multiple of it. 0 means 1.
	Every int

	// Repeats is called with n = 1 after each visited repeat of a segment, and again with the number of subsequent
	// repeats that are skipped. It may be nil.
	Repeats func(s *schedule.Segment, n int64)

	Visited int64 // number of actions visited so far
	visit   func(a schedule.Action, mb int64)
}

// NewWalk returns a walk with the given number of sets, all empty.
func NewWalk(o *Outline, sets int) Walk { return Walk{Sets: repeats.NewSets(sets, o.Allowance/8)} }

// Program walks all segments of a program, unless Sets are exhausted before its end. It calls visit for each
// action that is not skipped, with the action's microbatch in the current repeat.
func (w *Walk) Program(segments []schedule.Segment, visit func(a schedule.Action, mb int64)) {
	w.Position, w.visit = 0, visit
	w.walk(segments, 0, 0)
}

// Backwards returns the program that runs the same actions in reverse.
func Backwards(program []schedule.Segment) []schedule.Segment {
	list := make([]schedule.Segment, 0, len(program))
	for _, s := range slices.Backward(program) {
		list = append(list, backwards(s, 0))
	}
	return list
}

// backwards returns the segment that runs the same actions in reverse, with shift added to their
// microbatches.
func backwards(s schedule.Segment, shift int) schedule.Segment {
	shift += (s.Repeat - 1) * s.Stride
	back := schedule.Segment{Repeat: s.Repeat, Stride: -s.Stride}
	if s.Inner == nil {
		back.Body = make([]schedule.Action, 0, len(s.Body))
	}
	for _, a := range slices.Backward(s.Body) {
		back.Body = append(back.Body, a.Shift(shift))
	}
	for _, inner := range slices.Backward(s.Inner) {
		back.Inner = append(back.Inner, backwards(inner, shift))
	}
	return back
}

// walk visits segments whose first body has the given index, with shift added to their microbatches.
func (w *Walk) walk(segments []schedule.Segment, number int, shift int64) {
	for i := range segments {
		s := &segments[i]
		w.walkSegment(s, number, shift)
		number += max(len(s.Inner), 1)
	}
}

// walkSegment visits the repeats of a segment that cannot be skipped, and always the last one.
func (w *Walk) walkSegment(s *schedule.Segment, number int, shift int64) {
	start, length, total := w.Position, s.Len(), int64(s.Repeat)
	try := int64(1) // the next repeat that is recorded; the first one usually differs from the second
	if s.Stride%max(w.Every, 1) != 0 {
		try = total
	}
	for r := int64(0); r < total && !w.Sets.Exhausted; r++ {
		record := r >= try && total-r > 2
		if record {
			w.Sets.Begin(sign(s.Stride))
		}
		w.Position = start + r*length
		if by := shift + r*int64(s.Stride); s.Inner == nil {
			w.Body, w.Segment = s.Body, number
			w.walkBody(by)
		} else {
			w.Depth++
			w.walk(s.Inner, number, by)
			w.Depth--
		}
		if w.Repeats != nil {
			w.Repeats(s, 1)
		}
		if !record {
			continue
		}
		n := w.Sets.End(absStride(s), total-2-r)
		if n == 0 {
			try = 2 * r // recording costs time: doubling the distance bounds the attempts by the logarithm of total
			continue
		}
		if w.Repeats != nil {
			w.Repeats(s, n)
		}
		r += n
		try = r + 1
	}
	w.Position = start + total*length
}

func (w *Walk) walkBody(shift int64) {
	start := w.Position
	for i, a := range w.Body {
		w.Index, w.Position = i, start+int64(i)
		mb := int64(a.Microbatch())
		if shift != 0 && !a.Kind().OfStage() {
			mb += shift
		}
		w.visit(a, mb)
		if w.Sets.Spend(1); w.Sets.Exhausted {
			return
		}
	}
	w.Position = start + int64(len(w.Body))
	w.Visited += int64(len(w.Body))
}

// absStride returns the absolute value of a segment's stride, and sign the sign of a stride.
func absStride(s *schedule.Segment) int64 { return int64(max(s.Stride, -s.Stride)) }

func sign(stride int) int8 {
	switch {
	case stride > 0:
		return 1
	case stride < 0:
		return -1
	}
	return 0
}
