package schedule

// What tests of their own look at.
var (
	Fold          = fold
	And           = Segment.and
	Distance      = distance
	DeferReceives = deferReceives
)

// SendReceive is the pass of LowerPyTorch alone, on lists that may have idle cells.
func SendReceive(placement Placement, microbatches int, lists [][]Action) [][]Action {
	o := newOutline(&Plan{Placement: placement, Microbatches: microbatches})
	return o.sendReceive(lists)
}
