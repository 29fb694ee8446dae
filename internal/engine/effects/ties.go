package effects

import "iter"

// Use is a use of a parameter: a stage, and the index of the parameter in the stage.
type Use struct{ Stage, Param int }

// Tie is a use of a parameter and the parameter's first use, the owner. At step end, the ranks of the
// uses send their gradients to the owner's rank, in the order of the ties, and then receive the total.
type Tie struct{ Owner, Use Use }

// Ties returns the owner of every parameter, and the ties, both in stage order. params iterates over the
// indices and names of a stage's trained parameters.
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
