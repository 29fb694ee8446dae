package format

import "github.com/weir-ml/weir/schedule"

// Outlier returns an action whose microbatch may be a mistake, and its location: the first action of the largest
// microbatch, if the file has no action of the microbatch just below, and neither the file nor Options states the
// number of microbatches. Otherwise Outlier returns false. In a file with microbatches 0 to 2, 0F99 is an outlier:
// because of it the plan has 100 microbatches.
func (f *File) Outlier() (a schedule.Action, line, column int, ok bool) {
	if !f.inferred {
		return 0, 0, 0, false
	}
	largest, next := -1, -1
	at, position := 0, 0
	for rank := range f.Plan.Programs {
		i := 0
		for action := range f.Plan.All(rank) {
			switch mb := action.Microbatch(); {
			case mb > largest:
				largest, next = mb, largest
				a, at, position = action, rank, i
			case mb < largest:
				next = max(next, mb)
			}
			i++
		}
	}
	if largest == next+1 {
		return 0, 0, 0, false
	}
	line, column = f.LineColumn(at, int64(position))
	return a, line, column, true
}
