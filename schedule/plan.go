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
	// ForwardOnly plans are for evaluation: they run only F, for every stage and microbatch.
	ForwardOnly

	numModes = int(ForwardOnly) + 1
)

// The levels at which replicas shard state. Each level also shards the state of all lower levels; level 0
// shards nothing.
const (
	ShardOptimizer = 1 + iota // the optimizer's state
	ShardGradients            // reduced gradients
	ShardWeights              // weights, which are gathered for use
)

// Runtime is the system that runs a plan. It determines the meaning of the plan's transfers.
type Runtime uint8

const (
	// Weir is the runner of package schedule/runner: a rank waits at a receive until its message has
	// arrived, and at a send until the link has room for the message or, if the capacity is 0, until the
	// receiver takes it. Outputs and gradients use separate links.
	Weir Runtime = iota
	// PyTorch is torch.distributed.pipelining: a rank posts a send or a receive and continues.
	// A message is transmitted once both its send and its receive are posted, and the computation that takes the
	// message waits for it. Messages from one rank to another, outputs and gradients alike, arrive in the order in
	// which they were sent, because PyTorch matches sends and receives only by their order. A posted transfer delays
	// nothing else, as with gloo.
	PyTorch
	// The other runtimes are versions of PyTorch over NCCL, where a transfer that waits for its peer delays every
	// transfer posted after it in the same [Queue]. PyTorch29 is version 2.9.
	PyTorch29
	PyTorch214          // version 2.14
	PyTorch214Direction // version 2.14 with pipeline_per_direction_p2p
	PyTorch215          // version 2.15
	PyTorch215Lazy      // version 2.15 with the backend nccl-lazy
	PyTorch215Edge      // version 2.15 with pipeline_per_edge_p2p

	numRuntimes = int(PyTorch215Edge) + 1
)

// Queue says which transfers of a rank run one after another, in the order in which they are posted. In
// PyTorch these are the operations of one communicator, which share a stream.
type Queue uint8

const (
	NoQueue           Queue = iota // no transfer delays another one
	QueuePerRank                   // all transfers of a rank
	QueuePerPair                   // the sends and receives between two ranks
	QueuePerDirection              // the transfers of outputs on a rank, and those of gradients
	QueuePerEdge                   // the transfers from one rank to another
)

// Queue returns the queues of the runtime's transfers. PyTorch 2.9 runs every transfer on the communicator
// of the whole group (batch_isend_irecv in its _batch_p2p). 2.14 runs it on a communicator of the two ranks,
// or on one of the group's two communicators (_build_p2p_direction_groups). In 2.15, a group with the backend "nccl"
// has one stream for all transfers (_warn_if_eager_nccl), a group with "nccl-lazy" has one for each pair of ranks, and
// _p2p.py makes a group for each direction between two ranks.
func (r Runtime) Queue() Queue {
	switch r {
	case PyTorch29, PyTorch215:
		return QueuePerRank
	case PyTorch214, PyTorch215Lazy:
		return QueuePerPair
	case PyTorch214Direction:
		return QueuePerDirection
	case PyTorch215Edge:
		return QueuePerEdge
	}
	return NoQueue
}

// Posts reports whether ranks post transfers and continue, as in all versions of PyTorch.
func (r Runtime) Posts() bool { return r != Weir }

// Keeps reports whether the receive buffers of all microbatches exist for the whole step, and sent tensors until its
// end. This holds for the runtimes PyTorch29 to PyTorch214Direction.
func (r Runtime) Keeps() bool { return r >= PyTorch29 && r <= PyTorch214Direction }

// Segment is a part of a rank's program: a body that runs Repeat times. Each repeat adds Stride to
// the microbatches of the previous one. Body contains the actions of the first repeat. A plain list
// of actions is a segment with a Repeat of 1.
//
// A loop of loops has Inner segments instead of a body. The inner segments have bodies and no Inner segments.
type Segment struct {
	Body   []Action
	Inner  []Segment
	Repeat int
	Stride int // may be negative
}

// Plan describes a step as data: the program of every rank, and the tables that the passes of package
// schedule/lower fill in. A plan is immutable once built, and safe for concurrent use.
type Plan struct {
	Name         string // describes how the plan was made, such as "depth-first group=4"
	Mode         Mode
	Placement    Placement
	Microbatches int
	// Slices is the number of consecutive microbatches that are slices of one sequence; 0 means 1.
	// Microbatch u is slice u mod Slices of sequence u / Slices; the last sequence may have fewer
	// slices. On each stage, the forward of a slice depends on the forward of the previous slice,
	// and its backward depends on the backward of the next slice.
	Slices int
	// Frozen[stage] reports whether the stage has no weight gradients; nil means that no stage is
	// frozen. Only training plans use it.
	Frozen   []bool
	Programs [][]Segment // by rank
	// Runtime is the system for which the plan is made. Capacity is the number of messages that a
	// link between two ranks can hold; 0 means rendezvous, and Unlimited any number. Capacity has no
	// meaning in a plan without transfers.
	Runtime  Runtime
	Capacity int
	// OffloadSlots[stage] is the set of saved-state slots that an OFFLOAD of the stage moves to far memory,
	// with one bit per slot in the order in which the stage declares them. OffloadSlots is nil if the plan
	// offloads nothing.
	OffloadSlots []uint64

	// StageInfo holds, by stage, the facts given to the lifetime pass. It is nil before that pass.
	StageInfo []StageInfo
	// Parts[stage][kind] is the set of entry parts that an action of this kind on this stage drops
	// if it has DropParts, with one bit per part in the same order as in StageInfo. Parts is nil
	// before the lifetime pass.
	Parts [][NumKinds]uint64
	// StageWindows[stage] is the maximum width of the range of a stage's microbatches in flight: the
	// highest minus the lowest, plus one. A microbatch is in flight from the action that creates the
	// stage's input to the last computation of the stage. Thus in a ring of StageWindows[stage] slots, in
	// which each microbatch uses slot microbatch mod StageWindows[stage], no two microbatches need a slot at the same
	// time. EntryWindows[rank] is the corresponding width for batch entries on a rank, each from the first action of
	// its microbatch there to the drop of its last part; it is at least 1.
	StageWindows []int
	EntryWindows []int
	// SendWindows[stage] is the corresponding width for messages that the stage sends: the larger of
	// the widths for outputs, live from F to WAIT_F, and for gradients of inputs, live from B or I to
	// WAIT_B. It is 0 if the stage sends nothing to another rank. SendWindows is nil for a single rank, and
	// before the lifetime pass.
	SendWindows []int
}

// LengthMismatch describes a table of a plan whose length does not match the placement.
type LengthMismatch struct {
	Table     string // the name of the field of Plan
	Len, Want int
}

// LengthMismatches returns the tables of the plan, such as Programs and StageWindows, whose lengths do not match
// the numbers of stages or ranks. Tables other than Programs may be nil.
func (p *Plan) LengthMismatches() (list []LengthMismatch) {
	stages, ranks := p.Placement.Stages(), p.Placement.Ranks
	for _, table := range [...]struct {
		name      string
		has       bool
		len, want int
	}{
		{"Programs", true, len(p.Programs), ranks},
		{"Frozen", p.Frozen != nil, len(p.Frozen), stages},
		{"OffloadSlots", p.OffloadSlots != nil, len(p.OffloadSlots), stages},
		{"StageInfo", p.StageInfo != nil, len(p.StageInfo), stages},
		{"Parts", p.Parts != nil, len(p.Parts), stages},
		{"StageWindows", p.StageWindows != nil, len(p.StageWindows), stages},
		{"SendWindows", p.SendWindows != nil, len(p.SendWindows), stages},
		{"EntryWindows", p.EntryWindows != nil, len(p.EntryWindows), ranks},
	} {
		if table.has && table.len != table.want {
			list = append(list, LengthMismatch{table.name, table.len, table.want})
		}
	}
	return list
}

// Kinds returns, by kind, whether the plan has an action of the kind. It ignores actions whose kind has no
// name.
func (p *Plan) Kinds() (has [NumKinds]bool) {
	for _, program := range p.Programs {
		for a := range StaticActions(program) {
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

// Inside returns the segments that one repeat runs: Inner, or a single segment that runs the body once.
func (s *Segment) Inside() []Segment {
	if s.Inner != nil {
		return s.Inner
	}
	return []Segment{{Body: s.Body, Repeat: 1}}
}

// Len returns the number of actions in one repeat of the segment, counting every repeat of its inner segments.
func (s *Segment) Len() int64 {
	n := int64(len(s.Body))
	for i := range s.Inner {
		n += int64(len(s.Inner[i].Body)) * int64(s.Inner[i].Repeat)
	}
	return n
}

// StaticActions iterates over the actions of a program as they are written: each body once, with the
// microbatches of its first repeat.
func StaticActions(program []Segment) iter.Seq[Action] {
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

// Flat returns the plan with the body of every loop of loops written out. If there are no such loops,
// it returns the plan itself.
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

// All iterates over the actions of a rank in program order, including every repeat.
func (p *Plan) All(rank int) iter.Seq[Action] {
	return func(yield func(Action) bool) { expand(p.Programs[rank], 0, yield) }
}

// expand calls yield for the actions of every repeat of the segments, with by added to their
// microbatches, until yield returns false. It reports whether all calls returned true.
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

// HasBackward reports whether the plan runs a backward of the stage for every microbatch. It does so
// in training, unless the stage and all stages before it in the model are frozen.
func (p *Plan) HasBackward(stage int) bool {
	return p.Mode == Training && p.Placement.within(stage) >= firstTrained(p.Frozen)
}

// Ends reports whether an action of the kind is the stage's last computation for a microbatch.
func (p *Plan) Ends(stage int, kind Kind) bool {
	switch kind {
	case F:
		return !p.HasBackward(stage)
	case I:
		return p.IsFrozen(stage) || stage < len(p.StageInfo) && p.StageInfo[stage].Frozen
	}
	return kind == B || kind == W
}

// Span returns the range [lo, hi) of microbatches that run through a stage. If the placement has one
// copy of the model, these are all microbatches. Otherwise the copies divide the microbatches
// equally; if there is a remainder, the first copies run one more each. A plan numbers the
// microbatches copy by copy; BatchIndex maps these numbers to the order of the batch.
func (p *Plan) Span(stage int) (lo, hi int) {
	return p.Placement.span(stage, p.Microbatches)
}

// BatchIndex returns the index of a microbatch in the batch, from 0. Copies of a model take the entries
// of a batch in turn, starting with the first copy, so that all copies can begin with the first entries
// of the batch, and no copy waits for the second half of the batch. With one copy, the index equals the microbatch's
// number in the plan.
func (p *Plan) BatchIndex(microbatch int) int {
	if p.Placement.Copies < 2 {
		return microbatch
	}
	return p.turn(microbatch)
}

// turn is BatchIndex for a plan with several copies of the model.
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

// MicrobatchAt returns the microbatch with an index in the batch. It is the inverse of BatchIndex.
func (p *Plan) MicrobatchAt(index int) int {
	copies := max(p.Placement.Copies, 1)
	lo, _ := p.Span(index % copies * p.Placement.Depth())
	return lo + index/copies
}

// Wanted returns, by copy of the model, the entry parts that the stages of a rank read, which it takes from
// Parts. If w is the result, the parts for index i in the batch are w[i%len(w)].
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

// Actions returns the number of actions in a rank's program, counting every repeat.
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

// firstTrained returns the first stage that is not frozen, or len(frozen) if all are. The stages before it
// have no backward.
func firstTrained(frozen []bool) int {
	for stage, f := range frozen {
		if !f {
			return stage
		}
	}
	return len(frozen)
}
