package schedule

import (
	"iter"
	"slices"
)

// Unlimited is the capacity of a link that holds any number of messages.
const Unlimited = -1

// Mode is the purpose of a plan.
type Mode uint8

const (
	// Training plans run every microbatch forward and backward.
	Training Mode = iota
	// ForwardOnly plans evaluate: F of every stage and microbatch, nothing else.
	ForwardOnly

	numModes = int(ForwardOnly) + 1
)

// The levels of state that is sharded over replicas. Each shards the state of the levels below it as
// well; level 0 shards nothing.
const (
	ShardOptimizer = 1 + iota // the optimizer's state
	ShardGradients            // reduced gradients
	ShardWeights              // weights, which are gathered for use
)

// Runtime is the system that runs a plan. It decides what the transfers of the plan mean.
type Runtime uint8

const (
	// Weir: a rank waits at a receive until its message is there, and at a send until the
	// link has room for it. Outputs and gradients have a link each.
	Weir Runtime = iota
	// PyTorch is torch.distributed.pipelining: a rank posts a send or a receive and goes on.
	// A message goes on the wire when both are posted, and the computation that takes it
	// waits for it. What one rank sends to another arrives in the order in which it was
	// sent, outputs and gradients in one queue, since PyTorch pairs messages by their order
	// alone.
	PyTorch

	numRuntimes = int(PyTorch) + 1
)

// Segment is a part of a rank's program: the body, run Repeat times, with
// Stride added to every microbatch number from one repeat to the next. The
// actions of the body are those of the first repeat. A plain list of actions is
// a segment that repeats once.
//
// A loop of loops has Inner segments in the place of a body, and these have bodies.
type Segment struct {
	Body   []Action
	Inner  []Segment
	Repeat int
	Stride int // of either sign
}

// Plan is a step as data: for every rank its program, and the results of the passes. A plan is
// immutable once built and safe for concurrent use.
type Plan struct {
	Name         string // how it was made, such as "depth-first group=4"
	Mode         Mode
	Placement    Placement
	Microbatches int
	// Slices is how many microbatches in a row are slices of one sequence; 0 is 1.
	// Microbatch u is slice u mod Slices of sequence u / Slices; the last sequence may
	// have fewer. The forward of a slice needs the forward of the slice before it on the same
	// stage, its backward the backward of the slice after it.
	Slices int
	// Frozen is true by stage for stages that have no weight gradients; nil is none. It is declared
	// by training plans and means nothing in another mode.
	Frozen   []bool
	Programs [][]Segment // by rank
	// Runtime is the system for which the plan is made. Capacity is the number of messages that a
	// link between two ranks of Weir holds: Unlimited, or 0 for rendezvous. A plan without transfers
	// has no capacity.
	Runtime  Runtime
	Capacity int
	// Away[stage] is the set of the stage's slots of saved state, one bit each in the order in which
	// the stage declares them, that an OFFLOAD of the stage moves to far memory; nil if the plan
	// offloads nothing.
	Away []uint64

	// Facts are the facts of the lifetime pass, by stage; nil before that pass.
	Facts []Facts
	// Parts[stage][kind] is the set of entry parts, one bit each in the order that
	// the facts use, that are dropped by an action of this kind on this stage if it has DropParts;
	// nil before the lifetime pass.
	Parts [][NumKinds]uint64
	// Windows[stage] is the largest number of consecutive microbatches of a stage in flight at once:
	// the highest minus the lowest plus one, each from the action that brings the stage's input to
	// the last computation of the stage. So a ring of that size, with microbatch mod window as the
	// slot, never holds two in one slot. Entries[rank] is the same for batch entries on a rank, from
	// the first action of a microbatch there to the drop of its last part; it is at least 1.
	Windows []int
	Entries []int
	// Outgoing[stage] is the same for messages that the stage sends: consecutive microbatches whose
	// output is live, from its F to its WAIT_F, or whose input's gradient is, from its B or I to its
	// WAIT_B, whichever is more; 0 if the stage sends nothing to another rank. It is nil on one rank.
	Outgoing []int
}

// WrongLength is a table of a plan whose length does not match the placement.
type WrongLength struct {
	Table     string // the name of the field
	Len, Want int
}

// WrongLengths returns the tables of the plan, such as Programs and Windows, whose lengths do not match
// the numbers of stages or ranks. Tables other than Programs may be nil.
func (p *Plan) WrongLengths() (list []WrongLength) {
	stages, ranks := p.Placement.Stages(), p.Placement.Ranks
	for _, table := range [...]struct {
		name      string
		has       bool
		len, want int
	}{
		{"Programs", true, len(p.Programs), ranks},
		{"Frozen", p.Frozen != nil, len(p.Frozen), stages},
		{"Away", p.Away != nil, len(p.Away), stages},
		{"Facts", p.Facts != nil, len(p.Facts), stages},
		{"Parts", p.Parts != nil, len(p.Parts), stages},
		{"Windows", p.Windows != nil, len(p.Windows), stages},
		{"Outgoing", p.Outgoing != nil, len(p.Outgoing), stages},
		{"Entries", p.Entries != nil, len(p.Entries), ranks},
	} {
		if table.has && table.len != table.want {
			list = append(list, WrongLength{table.name, table.len, table.want})
		}
	}
	return list
}

// Kinds returns, by kind, whether the plan has an action of the kind. It ignores kinds without a
// name.
func (p *Plan) Kinds() (has [NumKinds]bool) {
	for _, program := range p.Programs {
		for a := range Written(program) {
			if int(a.Kind()) < NumKinds {
				has[a.Kind()] = true
			}
		}
	}
	return has
}

// HasTransfers reports whether the plan has sends or receives.
func (p *Plan) HasTransfers() bool {
	has := p.Kinds()
	return slices.Contains(has[SendF:RecvB+1], true)
}

// Inside returns the segments that one repeat runs: Inner, or the body once.
func (s *Segment) Inside() []Segment {
	if s.Inner != nil {
		return s.Inner
	}
	return []Segment{{Body: s.Body, Repeat: 1}}
}

// Len returns the number of actions of one repeat.
func (s *Segment) Len() int64 {
	n := int64(len(s.Body))
	for i := range s.Inner {
		n += int64(len(s.Inner[i].Body)) * int64(s.Inner[i].Repeat)
	}
	return n
}

// Written iterates over the actions of a program as they are written: those of a body
// once, as in its first repeat.
func Written(program []Segment) iter.Seq[Action] {
	return func(yield func(Action) bool) {
		for i := range program {
			for _, inner := range program[i].Inside() {
				for _, a := range inner.Body {
					if !yield(a) {
						return
					}
				}
			}
		}
	}
}

// Flat returns the plan with the body of every loop of loops written out; without any it
// is the plan itself.
func (p *Plan) Flat() *Plan {
	flat := *p
	flat.Programs = make([][]Segment, len(p.Programs))
	nested := false
	for rank, program := range p.Programs {
		flat.Programs[rank] = flatten(program)
		nested = nested || slices.ContainsFunc(program, func(s Segment) bool { return s.Inner != nil })
	}
	if !nested {
		return p
	}
	return &flat
}

// flatten returns the program with the body of every loop of loops written out.
func flatten(program []Segment) []Segment {
	list := slices.Clone(program)
	for i := range list {
		if s := &list[i]; s.Inner != nil {
			s.Body = make([]Action, 0, s.Len())
			expand(s.Inner, 0, func(a Action) bool { s.Body = append(s.Body, a); return true })
			s.Inner = nil
		}
	}
	return list
}

// All iterates over the actions of a rank in program order, each repeat
// expanded.
func (p *Plan) All(rank int) iter.Seq[Action] {
	return func(yield func(Action) bool) { expand(p.Programs[rank], 0, yield) }
}

// expand calls yield with the actions of segments, each repeat expanded and so much
// added to every microbatch, until it returns false.
func expand(segments []Segment, by int, yield func(Action) bool) bool {
	for i := range segments {
		s := &segments[i]
		for repeat := range s.Repeat {
			shift := by + repeat*s.Stride
			for _, action := range s.Body {
				if !yield(action.Shift(shift)) {
					return false
				}
			}
			if !expand(s.Inner, shift, yield) {
				return false
			}
		}
	}
	return true
}

// HasBackward reports whether the plan runs a backward of the stage for every
// microbatch: in training, unless neither the stage nor any before it trains.
func (p *Plan) HasBackward(stage int) bool {
	return p.Mode == Training && p.Placement.within(stage) >= firstTrained(p.Frozen)
}

// Ends reports whether an action of this kind is the stage's last one for a microbatch.
func (p *Plan) Ends(stage int, kind Kind) bool {
	switch kind {
	case F:
		return !p.HasBackward(stage)
	case I:
		return p.IsFrozen(stage) || stage < len(p.Facts) && p.Facts[stage].Frozen
	}
	return kind == B || kind == W
}

// Span returns the microbatches that run through a stage, from lo up to and without hi: all of them
// if the placement has one copy. Several copies of a model get equal parts of the microbatches, the
// first ones a microbatch more. A plan numbers them copy after copy, which Item maps to the order
// of a batch.
func (p *Plan) Span(stage int) (lo, hi int) {
	return p.Placement.span(stage, p.Microbatches)
}

// Item returns which one of the batch the microbatch is, from 0, in the order in which
// batches come: the copies of a model take turns, the first copy first. So all of them
// can begin with the first ones of a batch, and none waits for the second half. With one
// copy the item is the microbatch.
func (p *Plan) Item(microbatch int) int {
	if p.Placement.Copies < 2 {
		return microbatch
	}
	return p.turn(microbatch)
}

// turn is Item of a plan for several copies.
func (p *Plan) turn(microbatch int) int {
	copies := p.Placement.Copies
	c, lo := 0, 0
	for next := 1; next < copies; next++ {
		if first, _ := p.Span(next * p.Placement.Depth()); first <= microbatch {
			c, lo = next, first
		}
	}
	return (microbatch-lo)*copies + c
}

// OfItem returns the microbatch that is this one of the batch: it undoes Item.
func (p *Plan) OfItem(item int) int {
	copies := max(p.Placement.Copies, 1)
	lo, _ := p.Span(item % copies * p.Placement.Depth())
	return lo + item/copies
}

// Wanted returns, by copy of the model, the parts of entries that stages of a rank read. Of
// an item they are Wanted[item%len(Wanted)].
func (p *Plan) Wanted(rank int) []uint64 {
	wants := make([]uint64, max(p.Placement.Copies, 1))
	for stage := range p.Parts {
		if p.Placement.Rank[stage] == rank {
			for _, parts := range p.Parts[stage] {
				wants[stage/p.Placement.Depth()] |= parts
			}
		}
	}
	return wants
}

// Actions returns the number of actions in a rank's program, each repeat counted.
func (p *Plan) Actions(rank int) int64 {
	var n int64
	for _, segment := range p.Programs[rank] {
		n += segment.Len() * int64(segment.Repeat)
	}
	return n
}

// IsFrozen reports whether the stage has no weight gradients.
func (p *Plan) IsFrozen(stage int) bool {
	return stage < len(p.Frozen) && p.Frozen[stage]
}

// firstTrained returns the first stage that is not frozen. What lies before it
// is the frozen prefix, which has no backward.
func firstTrained(frozen []bool) int {
	for stage, f := range frozen {
		if !f {
			return stage
		}
	}
	return len(frozen)
}
