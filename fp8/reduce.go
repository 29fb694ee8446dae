package fp8

import "context"

// Reducer merges the measurements of all processes before histories roll: every process passes
// the tallies of its slots, which are the same slots in every process, and receives the merged
// ones ([Tally.Merge]). A collective may reduce them word by word: maxima of Amax and Greatest,
// minima of the nonzero Least, sums of the counts.
type Reducer interface {
	ReduceTallies(ctx context.Context, tallies []Tally) error
}
