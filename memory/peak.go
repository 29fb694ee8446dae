package memory

import "iter"

// PeakWatched is an optional ability of a [Space]: to say, when a period is over, which
// buffers were live at its highest level. It is for steps without a layout; what is live
// at the peak of a layout is known before the step.
type PeakWatched interface {
	// WatchPeak begins a period, or stops watching and forgets its state.
	WatchPeak(on bool)
	// At says at which place of its program a step is: where the next buffers are allocated.
	At(place int)
	// AtPeak iterates over the buffers that were live when most bytes were, since the last
	// WatchPeak, for the first time. The space must not be used meanwhile.
	AtPeak() iter.Seq[PeakBuffer]
}

// PeakBuffer is a buffer that was live at a peak.
type PeakBuffer struct {
	Class Class
	Bytes int64
	Place int // where it was allocated
}

// PeakOwner is what is alive of one name and class at the peak of a step, on one rank: as
// it was planned, or as it was.
type PeakOwner struct {
	Step    int64 // the step, or the first of those that a plan is for
	Rank    int
	Name    string
	Class   Class
	Bytes   int64 // of all its buffers
	Buffers int
	// First and Last are the lowest and the highest of their microbatches, -1 for none.
	First, Last int
}
