package format

import "github.com/weir-ml/weir/schedule"

// Outlier returns an action that may have its microbatch by mistake, and its place:
// the first one of the largest microbatch, where the file does not say how many there
// are, nobody was asked for a number, and the next lower microbatch of the file is not
// the one before. In a plan of 3, an 0F99 is one: it alone makes 100 of them.
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
	line, column = f.Place(at, int64(position))
	return a, line, column, true
}
