package layout

// SegmentPlaces says at which places of a memory.Layout the repeats of a segment of the
// program are. The first Lead repeats have places of their own, the last Tail of them
// too; those between take turns at the places of Cycle repeats.
type SegmentPlaces struct {
	First  int // place of the first action of the first repeat
	Body   int // actions of a repeat
	Repeat int
	Lead   int
	Cycle  int
	Tail   int
}

// Base returns the place of the first action of a repeat; the others follow it.
func (s *SegmentPlaces) Base(repeat int) int { return s.First + s.phase(repeat)*s.Body }

// phase returns which of the segment's repeats of its own a repeat takes the places of.
func (s *SegmentPlaces) phase(repeat int) int {
	switch tail := s.Repeat - s.Tail; {
	case repeat < s.Lead:
		return repeat
	case repeat >= tail:
		return s.Lead + s.Cycle + repeat - tail
	}
	return s.Lead + (repeat-s.Lead)%s.Cycle
}

// places returns how many places the segment has.
func (s *SegmentPlaces) places() int { return (s.Lead + s.Cycle + s.Tail) * s.Body }

// segments returns the segments of a played program, and the place of step end.
func (p *player) segments() (list []SegmentPlaces, end int) {
	for i, s := range p.program {
		span := p.spans[i]
		list = append(list, SegmentPlaces{First: end, Body: len(s.Body), Repeat: s.Repeat, Lead: span.lead, Cycle: span.cycle, Tail: span.tail})
		end += list[i].places()
	}
	return list, end
}

// place returns the place of a spot.
func place(list []SegmentPlaces, end int, at position) int {
	if int(at.segment) == len(list) {
		return end
	}
	return list[at.segment].Base(int(at.repeat)) + int(at.index)
}
