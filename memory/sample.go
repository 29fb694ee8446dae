package memory

import "strconv"

// Sample is one record of the memory log: the state of one rank after its last action of a
// microbatch. All sizes are in bytes.
type Sample struct {
	Time       int64 // nanoseconds since the Unix epoch
	Step       int64
	Rank       int
	Replica    int  // the rank's replica, if Replicated
	Replicated bool // there are several replicas
	Microbatch int
	Stage      int    // stage of the action
	Kind       string // kind of the action in letters, such as "B"
	Live       int64  // allocator's book, or the step's book if the space has none
	Peak       int64  // highest Live since this rank's previous record
	Reserved   int64
	Excess     int64   // allocator's book minus the step's and the baseline, including leaks of earlier steps; 0 if there are no leaks (L6)
	Growth     int64   // change of Excess since this rank's previous record (L7)
	Leak       Leak    // the call that Excess first grew in, if Growth is positive
	Weight     float64 // objective weight recorded so far in the step; 0 if a device sums it
	WaitData   int64   // nanoseconds spent waiting for the source since the previous record
	Classes    ByClass // Live by class
	// PeakClasses is Peak by class: the live bytes at the moment of the peak. Their sum is
	// Peak.
	PeakClasses ByClass

	// Planned reports whether the memory of the step was planned: if so, LivePlanned and PeakPlanned are
	// the planned values, or upper bounds if the plan is for several shapes.
	Planned                  bool
	LivePlanned, PeakPlanned int64

	// Far is the number of live bytes in the rank's far memory, and FarPeak the highest Far since
	// this rank's previous record; FarPlanned is the planned FarPeak. Excess and Growth include far
	// memory.
	Far, FarPeak, FarPlanned int64
}

// Leak names the call of a stage after which memory was live that the step did not hold. The zero Leak means
// that there is no leak, or that its call is unknown.
type Leak struct {
	Stage int
	Name  string // of the stage
	Call  string // the kind of the action in letters, such as "F"
	Class Class
}

// Ring keeps the last samples and never grows. The zero Ring keeps none. It is not safe for concurrent
// use.
type Ring struct {
	samples []Sample
	next    int
	full    bool
}

// NewRing returns a ring that keeps the last n samples. It allocates all of its memory up
// front.
func NewRing(n int) *Ring { return &Ring{samples: make([]Sample, max(n, 0))} }

// Put adds a copy of a sample. If the ring is full, it removes the oldest one; a ring of size 0 keeps none.
func (r *Ring) Put(s *Sample) {
	if len(r.samples) == 0 {
		return
	}
	r.samples[r.next] = *s
	r.next++
	if r.next == len(r.samples) {
		r.next, r.full = 0, true
	}
}

// Len returns the number of samples in the ring.
func (r *Ring) Len() int {
	if r.full {
		return len(r.samples)
	}
	return r.next
}

// At returns sample i, where 0 is the oldest, for 0 <= i < Len().
func (r *Ring) At(i int) *Sample {
	if r.full {
		i = (r.next + i) % len(r.samples)
	}
	return &r.samples[i]
}

// Growth is the largest number of bytes by which a microbatch increases the live memory beyond the plan;
// it should be 0. Audited reports whether an allocator's book was compared with the step's. Without such
// a book, memory owned by a garbage collector may grow unnoticed.
type Growth struct {
	Bytes   int64
	Audited bool
}

// String returns the number of bytes, or "not audited" if it is 0 and no allocator's book was compared.
func (g Growth) String() string {
	if !g.Audited && g.Bytes == 0 {
		return "not audited"
	}
	return strconv.FormatInt(g.Bytes, 10) + " bytes"
}
