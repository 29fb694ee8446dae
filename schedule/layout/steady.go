package layout

import (
	"github.com/weir-ml/weir/memory/placement"
)

// steady is what is born in each repeat of a segment that goes on and on.
type steady struct {
	Period  int64
	Buffers []placement.Buffer // born in the first period, and dead perhaps periods later
	segment int
	births  map[birth]int     // the buffer of the round
	kins    map[kin][]virtual // those of microbatches
	kept    []int32           // items from before that live on behind it: they lie below
	floor   int64             // end of these
	laid    *cycle
}

// cycle is where the buffers of a steady state lie: they lie there again after so many
// periods. Buffer b of period k lies at Offsets[k%Cycle*len(Buffers)+b].
type cycle struct {
	Cycle   int
	Offsets []int64
	Height  int64
}

// birth is a birth in a repeat.
type birth struct{ index, ordinal int32 }

// steady returns what is born in each of the repeats of a segment that are alike. Nil is
// none.
func (p *player) steady(segment int, align func(int64) int64) *steady {
	lead := p.spans[segment].alike
	if lead == 0 {
		return nil
	}
	var from, to int32 // changes before the first of them, and before what comes next
	for i, v := range p.visits {
		if s := int(v.at.segment); s == segment && int(v.at.repeat) == lead {
			if v.at.index == 0 {
				from = v.since
			}
			to = int32(len(p.log))
			if i+1 < len(p.visits) {
				to = p.visits[i+1].since
			}
		}
	}
	s := &steady{segment: segment, births: map[birth]int{}, kins: map[kin][]virtual{}}
	s.Period = int64(to - from)
	stride := p.program[segment].Stride
	for i := range p.items {
		switch it := &p.items[i]; {
		case it.birth >= from && it.birth < to:
			if o := it.origin; o.microbatch >= 0 && stride != 0 {
				k, ahead := kinOf(o, int(o.microbatch)-int(it.place.repeat)*stride, stride)
				s.kins[k] = append(s.kins[k], virtual{len(s.Buffers), ahead})
			}
			s.births[birth{it.place.index, it.ordinal}] = len(s.Buffers)
			s.Buffers = append(s.Buffers, placement.Buffer{Lower: int64(it.birth - from), Size: it.bytes, Align: align(it.bytes)})
		case it.birth < from && it.death >= to && int(it.place.segment) != segment:
			s.kept = append(s.kept, int32(i))
		}
	}
	// Each of them dies once in a repeat, so many repeats after its birth.
	for i := range p.items {
		if it := &p.items[i]; it.death >= from && it.death < to {
			b, known := s.births[birth{it.place.index, it.ordinal}]
			if !known || int(it.place.segment) != segment {
				return nil
			}
			s.Buffers[b].Upper = int64(lead-int(it.repeat))*s.Period + int64(it.death-from)
		}
	}
	for i := range s.Buffers {
		if s.Buffers[i].Upper <= s.Buffers[i].Lower {
			return nil
		}
	}
	for _, i := range s.kept {
		s.floor += roundUp(p.items[i].bytes, line)
	}
	return s
}
