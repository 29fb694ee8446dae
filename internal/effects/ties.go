package effects

import "iter"

// Use is one use of a parameter: a stage and the parameter's index there.
type Use struct{ Stage, Param int }

// Tie is a further use of a parameter and its first use, the owner. If their ranks differ, step
// end sends the gradients of all uses to the owner, in the order of the ties, and then the
// owner's total back to each use.
type Tie struct{ Owner, Use Use }

// Ties returns the owner of every parameter, and the ties, both in stage order. params iterates
// over the names and indices of the parameters of a stage that train.
func Ties(stages int, params func(stage int) iter.Seq2[int, string]) (owners []Use, ties []Tie) {
	first := map[string]Use{}
	for s := range stages {
		for i, name := range params(s) {
			use := Use{s, i}
			if owner, tied := first[name]; tied {
				ties = append(ties, Tie{owner, use})
			} else {
				first[name] = use
				owners = append(owners, use)
			}
		}
	}
	return owners, ties
}
