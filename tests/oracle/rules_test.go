package oracle

import (
	"fmt"
	"slices"

	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
)

// Size identifies a buffer that a stage of the suite allocates, once per call.
type Size int

// The first stage of a model makes the tensors x and skip, and returns a part of the entry as the
// mask. Every other stage makes a new x and returns skip and mask unchanged. Backwards return the
// gradients of x and skip in the same way; the mask has no gradient.
const (
	X            Size = iota // an output
	Skip                     // an output of the first stage
	XGrad                    // the gradient of the input x
	SkipGrad                 // the gradient of skip, made by the last stage
	ForInput                 // saved by F until B or I
	ForWeight                // saved by F until B or W
	Carry                    // saved by I until W
	ForwardWork              // workspace of F
	BackwardWork             // workspace of B and I
	WeightWork               // workspace of W
	QuantizeWork             // workspace of QUANTIZE
	ForwardCopy              // a copy of weights for the forward
	InputCopy                // a copy for the gradient of the stage's input
	BackwardCopy             // a copy for the backward
	NumSizes     = iota
)

// The parts of an entry.
const (
	Mask     = iota // read by the first stage in F, which returns it
	Tokens          // read by every stage in F, and by the first stage in W; kept until then
	Labels          // read by the last stage in F, B and I
	Scores          // read by the last stage in F
	NumParts = iota
)

// Model contains the declarations of the stages on all ranks, and how a step runs them.
type Model struct {
	Placement          schedule.Placement
	Frozen, Recomputes []bool // by stage
	Microbatches       int
	LookAhead          int
	Evaluates          bool // the step is forward only
	// Bytes returns the size of a stage's allocation, and PartBytes the size of a part. index is
	// the number of the microbatch in the batch, or -1 if the allocation belongs to none.
	Bytes     func(stage int, size Size, index int) int64
	PartBytes func(part, index int) int64
	Params    func(stage int) []Param
}

// Param is the gradient of a parameter. Uses of a tied parameter share its name.
type Param struct {
	Name  string
	Bytes int64
}

// Position is an action, or the end of the step after the last one.
type Position struct {
	Action            schedule.Action
	Born, Peak, After memory.ByClass // bytes allocated in it, maximum of live bytes, and live bytes after it
	Changes           int            // number of allocations and releases
}

// buffer is live while it has holders.
type buffer struct {
	class   memory.Class
	bytes   int64
	holders int
}

// place is a holder of buffers.
type place struct {
	role              role
	stage, microbatch int
}

type role int

const (
	input          role = iota // of a stage
	gradient                   // of its outputs
	output                     // of the last stage
	forInput                   // saved until B or I
	forWeight                  // saved until B or W
	outgoing                   // outputs in flight to another rank
	returning                  // gradients of inputs in flight to another rank
	forwardCopies              // of the weights of a stage
	backwardCopies             // of the weights of a stage
	entry                      // a part, held for the stage of the place
	call                       // released with a call
	discarded                  // saved without a consumer
)

// book contains the buffers that one rank holds.
type book struct {
	*Model
	rank     int
	backward []bool         // by stage: the step runs its backward
	lastRead map[[2]int]int // by microbatch and part: the last action of the rank that reads it
	ofIndex  []int          // the microbatch, by its number in the batch
	pulled   int            // number of entries
	held     map[place][]*buffer
	live     memory.ByClass
	now      *Position
}

// Positions returns the live memory of a rank at every action and at the end of the step, given the
// programs of all ranks. An error names the action with wrong drop bits.
func (m *Model) Positions(programs [][]schedule.Action, rank int) ([]Position, error) {
	b := &book{Model: m, rank: rank, backward: make([]bool, m.Placement.Stages()), ofIndex: make([]int, m.Microbatches),
		lastRead: map[[2]int]int{}, held: map[place][]*buffer{}}
	for _, a := range slices.Concat(programs...) {
		b.backward[a.Stage()] = b.backward[a.Stage()] || a.Kind() == schedule.B || a.Kind() == schedule.I
	}
	for i, a := range programs[rank] {
		for part := range NumParts {
			if b.reads(a.Stage(), a.Kind(), part) {
				b.lastRead[[2]int{a.Microbatch(), part}] = i
			}
		}
	}
	for microbatch := range b.ofIndex {
		b.ofIndex[b.index(microbatch)] = microbatch
	}
	list := make([]Position, len(programs[rank])+1)
	for i := range list {
		b.now, list[i].Peak = &list[i], b.live
		if i == len(programs[rank]) {
			b.pull(m.Microbatches - 1)
			b.ties()
		} else if err := b.act(programs[rank][i], i); err != nil {
			return nil, fmt.Errorf("rank %d, action %d, %v: %w", rank, i, programs[rank][i], err)
		}
		list[i].After = b.live
	}
	if b.live.Total() != 0 {
		return nil, fmt.Errorf("rank %d: nothing drops %v", rank, b.live)
	}
	return list, nil
}

// reads reports whether a stage reads a part in an action of this kind. A recompute is a read.
func (b *book) reads(s int, kind schedule.Kind, part int) bool {
	back := kind == schedule.B || kind == schedule.I
	forward := kind == schedule.F || back && b.Recomputes[s]
	switch part {
	case Mask:
		return forward && b.Placement.First(s)
	case Tokens:
		return forward || (kind == schedule.B || kind == schedule.W) && b.Placement.First(s)
	case Labels:
		return (forward || back) && b.Placement.Last(s)
	}
	return forward && b.Placement.Last(s)
}

// index returns the number of a microbatch in the batch: the copies of a model take
// microbatches of the batch alternately, beginning with the first copy.
func (b *book) index(microbatch int) int {
	copies := max(b.Placement.Copies, 1)
	for c := range copies {
		if n := (b.Microbatches + copies - 1 - c) / copies; microbatch >= n {
			microbatch -= n
		} else {
			return microbatch*copies + c
		}
	}
	panic("no such microbatch")
}

// act applies the effects of an action on memory: first allocations and results, then drops.
func (b *book) act(a schedule.Action, i int) error {
	b.now.Action = a
	s, m := a.Stage(), a.Microbatch()
	first := s - s%b.Placement.Depth() // of this copy of the model
	last := first + b.Placement.Depth() - 1
	switch kind := a.Kind(); kind {
	case schedule.F:
		b.pull(b.index(m))
		again := b.Recomputes[s] && !b.Evaluates
		if again { // F keeps only the inputs
			b.hold(place{forInput, s, m}, b.held[place{input, s, m}]...)
		}
		switch out := b.forward(s, m, again || b.Evaluates); {
		case s == last:
			b.hold(place{output, s, m}, out...)
		case b.Placement.Rank[s+1] == b.rank:
			b.hold(place{input, s + 1, m}, out...)
		default:
			b.hold(place{outgoing, s, m}, out...)
		}
	case schedule.B, schedule.I:
		if b.Recomputes[s] {
			b.forward(s, m, false)
			b.end(place{call, s, m}) // its result is not read
		}
		b.backpropagate(s, m, kind == schedule.I && !b.Frozen[s])
	case schedule.W:
		b.born(call, s, m, memory.Workspace, WeightWork)
	case schedule.RecvF:
		b.receive(place{input, s, m}, b.size(s-1, X, m), b.size(first, Skip, m), b.PartBytes(Mask, b.index(m)))
	case schedule.RecvB:
		b.receive(place{gradient, s, m}, b.size(s+1, XGrad, m), b.size(last, SkipGrad, m))
	case schedule.Quantize:
		m = -1
		b.born(call, s, m, memory.Workspace, QuantizeWork)
		b.born(forwardCopies, s, m, memory.FP8, ForwardCopy)
		if b.wantsGradient(s) {
			b.born(backwardCopies, s, m, memory.FP8, InputCopy)
		}
		if b.backward[s] {
			b.born(backwardCopies, s, m, memory.FP8, BackwardCopy)
		}
	}
	b.end(place{call, s, m})
	return b.drop(a, i)
}

// forward is the stage's forward in F, or in the recompute of a backward. A saved tensor without a
// consumer is released immediately.
func (b *book) forward(s, m int, discards bool) []*buffer {
	isFirst, isLast := b.Placement.First(s), b.Placement.Last(s)
	save := func(until role, saved *buffer) {
		if !discards {
			b.hold(place{until, s, m}, saved)
			return
		}
		b.hold(place{discarded, s, m}, saved)
		b.end(place{discarded, s, m})
	}
	b.born(call, s, m, memory.Workspace, ForwardWork)
	class := memory.Saved
	if isLast {
		class = memory.FP8
	}
	save(forInput, b.make(class, b.size(s, ForInput, m)))
	save(forWeight, b.make(memory.Saved, b.size(s, ForWeight, m)))
	out := []*buffer{b.born(call, s, m, memory.Activation, X)}
	switch {
	case !isFirst:
		in := b.held[place{input, s, m}]
		if b.now.Action.Kind() != schedule.F { // a recompute has its kept inputs
			in = b.held[place{forInput, s, m}]
		}
		save(forInput, in[0])
		out = append(out, in[1], in[2])
	case isLast:
		save(forWeight, b.held[place{entry, Tokens, m}][0])
	default:
		save(forWeight, b.held[place{entry, Tokens, m}][0])
		out = append(out, b.born(call, s, m, memory.Activation, Skip), b.held[place{entry, Mask, m}][0])
	}
	save(forWeight, out[0])
	if isLast {
		return out[:1]
	}
	return out
}

// backpropagate is the stage's backward in B or I. If carries is set, I saves a carry and its
// gradOut for W.
func (b *book) backpropagate(s, m int, carries bool) {
	b.born(call, s, m, memory.Workspace, BackwardWork)
	gradOut := b.held[place{gradient, s, m}]
	if b.wantsGradient(s) {
		to := place{gradient, s - 1, m}
		if b.Placement.Rank[s-1] != b.rank {
			to = place{returning, s, m}
		}
		b.hold(to, b.make(memory.ActGrad, b.size(s, XGrad, m)))
		if b.Placement.Last(s) {
			b.hold(to, b.make(memory.ActGrad, b.size(s, SkipGrad, m)))
		} else {
			b.hold(to, gradOut[1])
		}
	}
	if carries {
		b.born(forWeight, s, m, memory.Carry, Carry)
		if !b.Placement.Last(s) {
			b.hold(place{forWeight, s, m}, gradOut[0])
		}
	}
}

// wantsGradient reports whether a stage before this one trains.
func (b *book) wantsGradient(s int) bool { return !b.Placement.First(s) && b.backward[s-1] }

// drop applies the drop bits of the rank's ith action. A bit without a buffer to drop is an error.
// Buffers that no bit drops are live at the end of the step.
func (b *book) drop(a schedule.Action, i int) error {
	s, m, kind := a.Stage(), a.Microbatch(), a.Kind()
	dropped := a.Drop() & schedule.DropSaved // possibly nothing was saved
	for part := range NumParts {
		if last, read := b.lastRead[[2]int{m, part}]; read && last == i && b.end(place{entry, part, m}) {
			dropped |= schedule.DropParts
		}
	}
	for _, e := range []struct {
		bit        schedule.Drop
		role       role
		microbatch int
		ends       bool
	}{
		{schedule.DropInput, input, m, true},
		{schedule.DropGrad, gradient, m, true},
		{schedule.DropOutput, output, m, true},
		{schedule.DropSaved, forInput, m, kind != schedule.W},
		{schedule.DropSaved, forWeight, m, kind != schedule.I || b.Frozen[s]}, // the I of a frozen stage is its whole backward
		{schedule.DropSent, outgoing, m, kind == schedule.WaitF},
		{schedule.DropSent, returning, m, kind == schedule.WaitB},
		{schedule.DropForwardWeights, forwardCopies, -1, true},
		{schedule.DropBackwardWeights, backwardCopies, -1, true},
	} {
		if a.Drop()&e.bit != 0 && e.ends && b.end(place{e.role, s, e.microbatch}) {
			dropped |= e.bit
		}
	}
	if a.Drop()&^schedule.Retire != dropped {
		return fmt.Errorf("its drop bits are %v, and something ends for %v", a.Drop(), dropped)
	}
	return nil
}

// pull pulls the entries up to a number in the batch, plus the look-ahead. An entry has only the
// parts that the rank reads.
func (b *book) pull(index int) {
	for ; b.pulled <= min(index+b.LookAhead, b.Microbatches-1); b.pulled++ {
		for part := range NumParts {
			m := b.ofIndex[b.pulled]
			if _, read := b.lastRead[[2]int{m, part}]; read {
				b.hold(place{entry, part, m}, b.make(memory.Entry, b.PartBytes(part, b.pulled)))
			}
		}
	}
}

// ties runs the end of a step: the gradients of each tied parameter are sent to the rank of its first use,
// and the total is sent back. A received buffer is released once it has been added.
func (b *book) ties() {
	if b.Evaluates {
		return
	}
	owners := map[string]int{}
	for s := range b.Placement.Stages() {
		for _, param := range b.Params(s) {
			owner, tied := owners[param.Name]
			switch here, there := b.Placement.Rank[s] == b.rank, b.Placement.Rank[owner] == b.rank; {
			case b.Frozen[s]:
			case !tied:
				owners[param.Name] = s
			case here != there:
				b.hold(place{call, s, -1}, b.make(memory.Transfer, param.Bytes))
				b.end(place{call, s, -1})
			}
		}
	}
}

// receive is an incoming transfer.
func (b *book) receive(to place, bytes ...int64) {
	for _, n := range bytes {
		b.hold(to, b.make(memory.Transfer, n))
	}
}

// size returns the size of a stage's allocation; microbatch -1 means none.
func (b *book) size(s int, size Size, m int) int64 {
	if m < 0 {
		return b.Bytes(s, size, m)
	}
	return b.Bytes(s, size, b.index(m))
}

// born allocates a buffer of a stage, held in a place of the stage.
func (b *book) born(at role, s, m int, class memory.Class, size Size) *buffer {
	made := b.make(class, b.size(s, size, m))
	b.hold(place{at, s, m}, made)
	return made
}

func (b *book) make(class memory.Class, bytes int64) *buffer {
	b.live[class] += bytes
	b.now.Born[class] += bytes
	b.now.Changes++
	if b.live.Total() > b.now.Peak.Total() {
		b.now.Peak = b.live
	}
	return &buffer{class: class, bytes: bytes}
}

func (b *book) hold(at place, list ...*buffer) {
	for _, held := range list {
		held.holders++
	}
	b.held[at] = append(b.held[at], list...)
}

// end releases the buffers of a place, and reports whether there were any.
func (b *book) end(at place) bool {
	list := b.held[at]
	delete(b.held, at)
	for _, held := range list {
		if held.holders--; held.holders == 0 {
			b.live[held.class] -= held.bytes
			b.now.Changes++
		}
	}
	return len(list) > 0
}
