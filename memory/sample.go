package memory

import "strconv"

// Sample is one record of the memory log: the state of one rank after the last
// action there of one microbatch. All sizes are bytes.
type Sample struct {
	Time       int64 // nanoseconds since the Unix epoch
	Step       int64
	Rank       int
	Microbatch int
	Stage      int    // stage of the action
	Kind       string // letters of the action's kind, such as "B"
	Live       int64  // allocator's book; the context's book where the space has none
	Peak       int64  // highest Live since this rank's previous record
	Reserved   int64
	Excess     int64   // allocator's book minus the context's and the baseline; 0 unless something leaks (L6)
	Growth     int64   // change of Excess since this rank's previous record (L7)
	Weight     float64 // weight recorded so far in the step for the objective; 0 where a device adds it up
	WaitData   int64   // nanoseconds waited for the source since the previous record
	Classes    ByClass // Live by class
	// PeakClasses is Peak by class: what was live at that moment, so that the sum is Peak.
	PeakClasses ByClass

	// Planned says that the memory of the step was planned: Live and Peak are then what
	// these say, at most where a plan is for several shapes.
	Planned                  bool
	LivePlanned, PeakPlanned int64
}

// Ring keeps the last samples and never grows. The zero Ring keeps none. It is
// not for concurrent use.
type Ring struct {
	samples []Sample
	next    int
	full    bool
}

// NewRing returns a ring of the last n samples; all its memory is allocated here.
func NewRing(n int) *Ring { return &Ring{samples: make([]Sample, max(n, 0))} }

// Put adds a sample and forgets the oldest where the ring is full.
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

// At returns sample i, the oldest first, for 0 <= i < Len().
func (r *Ring) At(i int) *Sample {
	if r.full {
		i = (r.next + i) % len(r.samples)
	}
	return &r.samples[i]
}

// Growth is by how many bytes a microbatch grows at most what is live beyond the plan: 0
// is what must be. Audited says that an allocator's book was compared with the step's;
// without one, memory that a garbage collector owns may grow unseen.
type Growth struct {
	Bytes   int64
	Audited bool
}

// String returns the bytes, and "not audited" where they say nothing.
func (g Growth) String() string {
	if !g.Audited && g.Bytes == 0 {
		return "not audited"
	}
	return strconv.FormatInt(g.Bytes, 10) + " bytes"
}
