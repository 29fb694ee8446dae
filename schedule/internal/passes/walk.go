package passes

import (
	"slices"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/internal/repeats"
)

// A Walk takes a rank's program action by action and keeps sets of microbatches
// on the way: what is done, what is dropped, what is in flight. It skips repeats that
// cannot differ (package repeats), so that it costs the same whatever their number.
//
// A set's width is linear in the repeat, so its largest value is found in the first or
// the last repeat of those that are skipped or around them, and these are walked.
type Walk struct {
	repeats.Sets

	// Where the walk is; for what visits it.
	Segment, Index int
	Position       int64 // of the action in the expanded program

	// Every is what a stride must be a multiple of where visits look at a microbatch
	// modulo it; 0 is 1.
	Every int

	Visited int64 // actions
}

// visitor is what a walk calls.
type visitor interface {
	// Visit is called for each action that the walk does not skip, with the
	// microbatch that it is for in this repeat.
	Visit(a schedule.Action, mb int64)
	// Repeats is called with n after a repeat that stands for n repeats: itself,
	// and then once more for those that are skipped because they are like it.
	Repeats(n int64)
}

// NewWalk returns a walk over this many sets, all empty.
func NewWalk(sets int) Walk { return Walk{Sets: repeats.NewSets(sets)} }

// Program walks all segments. Reverse walks them from the last action to the
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

// walkSegment walks the repeats of a segment, but for those that are like the one before
// them. The last one is always walked.
func (w *Walk) walkSegment(s schedule.Segment, v visitor) {
	start, total := w.Position, int64(s.Repeat)
	try := int64(1) // the next repeat that is recorded; the first one differs from the second
	if s.Stride%max(w.Every, 1) != 0 {
		try = total
	}
	for r := int64(0); r < total && !w.Exhausted; r++ {
		record := r >= try && total-r > 2
		if record {
			w.Begin(sign(s.Stride))
		}
		w.Position = start + r*int64(len(s.Body))
		w.walkRepeat(s, r, v)
		v.Repeats(1)
		if !record {
			continue
		}
		if n := w.End(pace(&s), total-2-r); n > 0 {
			v.Repeats(n)
			r += n
			try = r + 1
		} else {
			try = 2 * r
		}
	}
}

func (w *Walk) walkRepeat(s schedule.Segment, r int64, v visitor) {
	shift, start := r*int64(s.Stride), w.Position
	for i, a := range s.Body {
		w.Index, w.Position = i, start+int64(i)
		mb := int64(a.Microbatch())
		if shift != 0 && !a.Kind().OfStage() {
			mb += shift
		}
		v.Visit(a, mb)
		if w.Spend(1); w.Exhausted {
			return
		}
	}
	w.Position = start + int64(len(s.Body))
	w.Visited += int64(len(s.Body))
}

// pace returns by how many microbatches a repeat moves on, and sign in which direction.
func pace(s *schedule.Segment) int64 { return int64(max(s.Stride, -s.Stride)) }

func sign(stride int) int8 {
	switch {
	case stride > 0:
		return 1
	case stride < 0:
		return -1
	}
	return 0
}
