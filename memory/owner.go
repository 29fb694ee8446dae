package memory

// PeakOwner is what is alive of one name and class at the peak of a planned step, on one
// rank.
type PeakOwner struct {
	Step    int64 // the first step that the plan is for
	Rank    int
	Name    string
	Class   Class
	Bytes   int64 // of all its buffers
	Buffers int
	// First and Last are the lowest and the highest of their microbatches, -1 for none.
	First, Last int
}
