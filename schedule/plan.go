package schedule

import "iter"

// Mode is what a plan is for.
type Mode uint8

const (
	// Training plans run every microbatch forward and backward.
	Training Mode = iota
	// ForwardOnly plans evaluate: F of every stage and microbatch, nothing else.
	ForwardOnly
)

// Segment is a part of a rank's program: the body, run Repeat times, with
// Stride added to every microbatch number from one repeat to the next. The
// actions of the body are those of the first repeat. A plain list of actions is
// a segment that repeats once.
type Segment struct {
	Body   []Action
	Repeat int
	Stride int // of either sign
}

// Placement maps stages to ranks.
type Placement struct {
	Ranks int
	Rank  []int // Rank[s] is the rank of stage s
}

// Looped places stage s on rank s mod ranks.
func Looped(ranks, stages int) Placement {
	p := Placement{Ranks: ranks, Rank: make([]int, stages)}
	for s := range p.Rank {
		p.Rank[s] = s % ranks
	}
	return p
}

// Stages returns the number of stages.
func (p Placement) Stages() int { return len(p.Rank) }

// Plan is a step as data: for every rank its program, and what the passes have
// found out about it. A plan is immutable once built and safe for concurrent use.
type Plan struct {
	Name         string // how it was made, such as "depth-first group=4"
	Mode         Mode
	Placement    Placement
	Microbatches int
	Programs     [][]Segment // by rank

	// Facts are those the lifetime pass was given, by stage; nil before that pass.
	Facts []Facts
	// Parts[stage][kind] is the set of entry parts, one bit each in the order of
	// FactsParts, that die with an action of this kind on this stage where it
	// carries DropParts; nil before the lifetime pass.
	Parts [][numKinds]uint64
	// Windows[stage] says how many consecutive microbatches of a stage are in
	// flight at once at most; Entries[rank] the same of batch entries on a rank.
	Windows []int
	Entries []int
}

// All iterates over the actions of a rank in program order, each repeat
// expanded.
func (p *Plan) All(rank int) iter.Seq[Action] {
	return func(yield func(Action) bool) {
		for _, segment := range p.Programs[rank] {
			for repeat := range segment.Repeat {
				shift := repeat * segment.Stride
				for _, action := range segment.Body {
					if !yield(action.Shift(shift)) {
						return
					}
				}
			}
		}
	}
}
