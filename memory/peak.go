package memory

import "iter"

// PeakWatched is an optional interface of a [Space]: after a period, it reports which buffers were live
// at the highest level. It is for steps without a layout; with a layout, the buffers at the peak are
// known before the step.
type PeakWatched interface {
	// WatchPeak starts a period if on is set. Otherwise it stops watching and discards the buffers that it
	// has recorded.
	WatchPeak(on bool)
	// SetPlace sets the current place of the program, at which the next buffers are allocated.
	SetPlace(place int)
	// AtPeak iterates over the buffers that were live when the level first reached its maximum
	// since the last WatchPeak. The space must not be used during the iteration.
	AtPeak() iter.Seq[PeakBuffer]
}

// PeakBuffer is a buffer that was live at a peak.
type PeakBuffer struct {
	Class Class
	Bytes int64
	Place int // at which it was allocated
}

// PeakOwner describes the live memory with one name and class at the peak of a step, on one
// rank, as planned or as measured.
type PeakOwner struct {
	Step    int64 // the step, or the first step of a plan
	Rank    int
	Name    string
	Class   Class
	Bytes   int64 // total size of its buffers
	Buffers int
	// First and Last are the lowest and highest microbatch that the buffers belong to, or -1 if they belong
	// to none.
	First, Last int
}
