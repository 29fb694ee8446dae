package fp8

import "context"

// Reducer merges the measurements of all processes before histories are rolled. Every process
// passes its tallies, for the same slots in the same order, and receives the merged ones
// ([Tally.Merge]). A collective may reduce them word by word: maxima of Amax and Greatest, minima
// of the nonzero Least, sums of the counts.
type Reducer interface {
	ReduceTallies(ctx context.Context, tallies []Tally) error
}
