package memory

// Meter is an allocator's book as a value: what is live, by class, and what was when it
// was most. The zero Meter is empty and ready. Implementations of [Book] keep one and
// feed it at allocate and at free, nowhere else (L6). It is not for concurrent use.
type Meter struct {
	live          int64
	allocs, frees int64
	classes       ByClass

	// The highest level at which a buffer was freed since ResetPeak. While nothing is freed the
	// level only climbs, so the first free above it has met the next one, and the present
	// may be above it too.
	peak        int64
	peakClasses ByClass
}

// Alloc enters a buffer of so many bytes. The class must be one of
// the classes.
func (m *Meter) Alloc(class Class, bytes int64) {
	m.live += bytes
	m.allocs++
	m.classes[class] += bytes
}

// Free enters that a buffer was freed, with the class and the bytes of its allocation.
func (m *Meter) Free(class Class, bytes int64) {
	if m.live > m.peak { // a branch: at most times there is nothing to store
		m.ResetPeak()
	}
	m.live -= bytes
	m.frees++
	m.classes[class] -= bytes
}

// Live returns the bytes allocated and not yet freed.
func (m *Meter) Live() int64 { return m.live }

// ResetPeak makes what is live now the peak.
func (m *Meter) ResetPeak() {
	m.peak = m.live
	m.peakClasses = m.classes
}

// Stats fills s. The meter does not know how much the system has given:
// Reserved becomes 0 and the caller sets it.
func (m *Meter) Stats(s *Stats) {
	*s = Stats{Live: m.live, Peak: m.peak, Allocs: m.allocs, Frees: m.frees, Classes: m.classes, PeakClasses: m.peakClasses}
	if m.live > m.peak {
		s.Peak, s.PeakClasses = m.live, m.classes
	}
}
