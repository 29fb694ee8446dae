package fp8

import "context"

// Reducer merges what the processes of a run have measured, before histories roll: every
// process gives the tallies of its slots, which are the same slots everywhere, and has
// the merged ones afterwards ([Tally.Merge]). A collective may reduce it word by word:
// maxima of Amax and Greatest, minima of those Least that are not 0, sums of the counts.
type Reducer interface {
	ReduceTallies(ctx context.Context, tallies []Tally) error
}
