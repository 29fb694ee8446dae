package layout

// SegmentPlaces maps the repeats of a segment of the program to places of a memory.Layout. Each of
// the first Lead repeats and of the last Tail repeats has its own places. The repeats between them
// share the places of Cycle repeats: the places of a repeat are those of the repeat Cycle before it.
type SegmentPlaces struct {
	First  int // place of the first action of the first repeat
	Body   int // actions of a repeat
	Repeat int
	Lead   int
	Cycle  int
	Tail   int
}

// Base returns the place of the first action of a repeat. The places of its other actions follow.
func (s *SegmentPlaces) Base(repeat int) int { return s.First + s.phase(repeat)*s.Body }

// phase returns the index of a repeat's places: 0 for the places of the first repeat, and so on.
func (s *SegmentPlaces) phase(repeat int) int {
	switch tail := s.Repeat - s.Tail; {
	case repeat < s.Lead:
		return repeat
	case repeat >= tail:
		return s.Lead + s.Cycle + repeat - tail
	}
	return s.Lead + (repeat-s.Lead)%s.Cycle
}

// places returns the number of places of the segment.
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

// place returns the place of a position.
func place(list []SegmentPlaces, end int, at position) int {
	if int(at.segment) == len(list) {
		return end
	}
	return list[at.segment].Base(int(at.repeat)) + int(at.index)
}
