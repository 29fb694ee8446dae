package memory

import "iter"

// climb is what an arena knows about the highest level of a period, where somebody asked
// for it: enough to say afterwards which buffers were live then. That costs a release
// a comparison or two, and neither the first release at a new highest level nor any
// other one looks at what else is live.
type climb struct {
	watched bool
	level   int64        // the highest level at which a buffer was released
	before  uint64       // what was live then had a lower serial number
	gone    []PeakBuffer // what was live then and was released since
}

// released enters the release of a buffer that the meter still has.
func (c *climb) released(s *slot, m *Meter) {
	if m.live > c.level {
		c.level, c.before, c.gone = m.live, uint64(m.allocs), c.gone[:0]
	}
	if s.serial < c.before {
		c.gone = append(c.gone, s.atPeak())
	}
}

// atPeak describes the buffer.
func (s *slot) atPeak() PeakBuffer {
	return PeakBuffer{Class: s.class, Bytes: s.bytes, Place: int(s.birth)}
}

// WatchPeak begins a period, or stops watching; see [PeakWatched]. So does Lay: a layout
// says beforehand what is live at its peak.
func (a *Arena) WatchPeak(on bool) {
	if !on {
		a.climb = climb{}
		return
	}
	a.climb = climb{watched: true, gone: a.climb.gone[:0]}
}

// AtPeak iterates over what was live at the highest level since WatchPeak, in no order. The
// arena must not be used until it is over.
func (a *Arena) AtPeak() iter.Seq[PeakBuffer] {
	return func(yield func(PeakBuffer) bool) {
		c := &a.climb
		gone, before := c.gone, c.before
		if a.meter.live > c.level { // now is the highest
			gone, before = nil, a.Mark()
		}
		for _, b := range gone {
			if !yield(b) {
				return
			}
		}
		for i := range a.slots {
			if s := &a.slots[i]; s.live() && s.serial < before && !yield(s.atPeak()) {
				return
			}
		}
	}
}
