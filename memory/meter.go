package memory

// Meter implements an allocator's book: it counts the live bytes by class, now and at the peak. The
// zero Meter is empty and ready to use. Implementations of [Book] keep one and update it only
// at allocations and frees (L6). It is not safe for concurrent use.
type Meter struct {
	live          int64
	allocs, frees int64
	classes       ByClass

	// peak is the highest level since ResetPeak, as of the last call to Free. Between frees the level only
	// rises, so it is enough to update peak at a free; until then, the current level may be higher than
	// peak.
	peak        int64
	peakClasses ByClass
}

// Alloc records the allocation of a buffer. The class must be one of the classes.
func (m *Meter) Alloc(class Class, bytes int64) {
	m.live += bytes
	m.allocs++
	m.classes[class] += bytes
}

// Free records that a buffer was freed. Class and bytes must be the same as at its allocation.
func (m *Meter) Free(class Class, bytes int64) {
	if m.live > m.peak { // rarely true, so there is usually nothing to store
		m.ResetPeak()
	}
	m.live -= bytes
	m.frees++
	m.classes[class] -= bytes
}

// Live returns the bytes allocated and not yet freed.
func (m *Meter) Live() int64 { return m.live }

// ResetPeak sets the peak to the live bytes.
func (m *Meter) ResetPeak() {
	m.peak = m.live
	m.peakClasses = m.classes
}

// Stats fills s. The meter does not know how much memory is held from the system, so it sets Reserved to
// 0 and the caller fills it in.
func (m *Meter) Stats(s *Stats) {
	*s = Stats{Live: m.live, Peak: m.peak, Allocs: m.allocs, Frees: m.frees, Classes: m.classes, PeakClasses: m.peakClasses}
	if m.live > m.peak {
		s.Peak, s.PeakClasses = m.live, m.classes
	}
}
