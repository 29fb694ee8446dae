package memory

// Meter is an allocator's book as a value: what is live, by class, and the
// highest it has been. The zero Meter is empty and ready. Implementations of
// [Book] keep one and feed it at allocate and at free, nowhere else (L6). It is
// not for concurrent use.
type Meter struct {
	live, peak    int64
	allocs, frees int64
	classes       ByClass
}

// Alloc enters the birth of a buffer of so many bytes. The class must be one of
// the classes.
func (m *Meter) Alloc(class Class, bytes int64) {
	m.live += bytes
	if m.live > m.peak { // a branch: at most times there is nothing to store
		m.peak = m.live
	}
	m.allocs++
	m.classes[class] += bytes
}

// Free enters the end of a buffer, with the class and the bytes of its birth.
func (m *Meter) Free(class Class, bytes int64) {
	m.live -= bytes
	m.frees++
	m.classes[class] -= bytes
}

// Live returns the bytes allocated and not yet freed.
func (m *Meter) Live() int64 { return m.live }

// ResetPeak makes the bytes that are live now the peak.
func (m *Meter) ResetPeak() { m.peak = m.live }

// Stats fills s. What is held from the system is not the meter's to know:
// Reserved becomes 0 and the caller sets it.
func (m *Meter) Stats(s *Stats) {
	*s = Stats{Live: m.live, Peak: m.peak, Allocs: m.allocs, Frees: m.frees, Classes: m.classes}
}
