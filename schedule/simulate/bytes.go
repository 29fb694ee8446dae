package simulate

import (
	"github.com/weir-ml/weir/internal/engine/effects"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/internal/repeats"
)

// The classes that actions allocate and free are consecutive.
const (
	firstHeld = memory.Activation
	numHeld   = int(memory.Unsharded-firstHeld) + 1
)

// holding describes the bytes that an action of one kind on one stage allocates and frees.
type holding struct {
	allocated, freed         [numHeld]int64 // bytes by class
	allocatedBytes, netBytes int64          // sums over all classes: of the allocated bytes, and of the allocated minus the freed bytes
	started, finished        int64          // the number of microbatches that begin and cease to be in flight on the stage
	far                      int64          // bytes allocated in far memory
}

// buffer is a buffer of a microbatch, or the whole weights or gradients of a stage. The costs of the stage
// contain its size.
type buffer struct {
	class memory.Class
	size  quantity
	stage int
}

// allocate adds a buffer that the action allocates.
func (h *holding) allocate(class memory.Class, bytes int64) {
	if bytes > 0 {
		h.allocated[class-firstHeld] += bytes
		h.allocatedBytes += bytes
		h.netBytes += bytes
	}
}

// free adds a buffer that the action frees.
func (h *holding) free(class memory.Class, bytes int64) {
	if bytes > 0 {
		h.freed[class-firstHeld] += bytes
		h.netBytes -= bytes
	}
}

// setHoldings sets the holdings of a stage for microbatches with equal costs.
func (s *simulation) setHoldings(stage int) {
	for kind := schedule.F; kind <= schedule.WaitReduce; kind++ {
		s.hold(&s.holdings[tableIndex(stage, kind)], stage, kind, 0)
	}
}

// hold adds the bytes that an action allocates and frees to a holding.
func (s *simulation) hold(h *holding, stage int, kind schedule.Kind, microbatch int) {
	if kind == schedule.F {
		h.started = 1
	}
	if s.plan.Ends(stage, kind) {
		h.finished = 1
	}
	if kind == schedule.Offload {
		h.far = s.bytes(offloadedBytes, stage, microbatch)
	}
	s.eachBuffer(stage, kind, func(b buffer, allocates bool) {
		if bytes := s.bytes(b.size, b.stage, microbatch); allocates {
			h.allocate(b.class, bytes)
		} else {
			h.free(b.class, bytes)
		}
	})
}

// eachBuffer calls visit for each buffer that an action allocates or frees. I frees a part of the saved
// state and allocates a carry; W frees the carry and the rest of the saved state.
func (s *simulation) eachBuffer(stage int, kind schedule.Kind, visit func(b buffer, allocates bool)) {
	saved := func(q quantity) buffer { return buffer{memory.Saved, q, stage} }
	carry := buffer{memory.Carry, carryBytes, stage}
	switch kind {
	case schedule.F:
		visit(saved(savedBytes), true)
	case schedule.Offload:
		return
	case schedule.WaitOffload:
		visit(saved(offloadedBytes), false)
		return
	case schedule.Reload:
		visit(saved(offloadedBytes), true)
		return
	}
	e := effects.OfKind(s.plan, stage, kind)
	visit(s.buffers[e.Stage][e.To], true)
	for ends := e.Ends; ends != 0; ends &= ends - 1 {
		switch place := ends.First(); {
		case place != effects.Saved:
			visit(s.buffers[stage][place], false)
		case !e.Last:
			visit(saved(savedForI), false)
			visit(carry, true)
		case kind == schedule.W:
			visit(saved(savedForW), false)
			visit(carry, false)
		default:
			visit(saved(savedBytes), false)
		}
	}
	for _, c := range s.crossings[tableIndex(stage, kind)] {
		visit(c.buffer, c.allocates)
	}
}

// crossing is a buffer of a message that an action allocates or frees in addition to those of package effects.
type crossing struct {
	buffer    buffer
	allocates bool
}

// crossBuffers adds the buffers of a message to the crossings if the plan does not wait for its sends,
// or has no sends, or if the runtime keeps them for the whole step.
func (s *simulation) crossBuffers(p *passage) {
	add := func(stage int, kind schedule.Kind, c crossing) {
		i := tableIndex(stage, kind)
		s.crossings[i] = append(s.crossings[i], c)
	}
	sent, received := &s.buffers[p.from][p.sent], &s.buffers[p.to][p.received]
	switch {
	case s.transfers && s.plan.Runtime.Keeps():
		for _, kind := range p.kinds {
			add(p.from, kind, crossing{*sent, true})
		}
		rank := s.plan.Placement.Rank[p.to]
		s.kept[rank] = append(s.kept[rank], *received)
		*sent, *received = buffer{}, buffer{}
	case s.transfers && !p.waits:
		add(p.from, p.send, crossing{*sent, false})
	case !s.transfers:
		for _, kind := range p.kinds {
			add(p.from, kind, crossing{*sent, false})
			add(p.to, kind, crossing{*received, true})
		}
	}
}

// holding returns the holding of an action. The result is valid until the next call to holding.
func (s *simulation) holding(a schedule.Action) *holding {
	if s.sizes == nil || a.Kind() == schedule.Quantize {
		return &s.holdings[tableIndex(a.Stage(), a.Kind())]
	}
	return s.unequalHolding(a)
}

// unequalHolding is holding for microbatches with different costs.
func (s *simulation) unequalHolding(a schedule.Action) *holding {
	h := &s.holdings[tableIndex(a.Stage(), a.Kind())]
	*h = holding{}
	s.hold(h, a.Stage(), a.Kind(), a.Microbatch())
	return h
}

// level is the live memory of a rank.
type level struct {
	s          *simulation
	copies     []weightCopies // copies of weights, by stage; nil if the plan makes none
	classes    memory.ByClass
	bytes      int64 // the sum over all classes
	inFlight   int64
	far        int64          // bytes in far memory
	reloaded   []repeats.Runs // by index of the stage on the rank: the microbatches whose saved state is reloaded; nil without offloads
	stageIndex []int          // by stage: its index among the stages of the rank

	report *RankReport // receives the peaks
}

// level returns the level of a rank before its first action. The level records its peaks in the
// report.
func (s *simulation) level(rank int, report *RankReport) level {
	l := level{s: s, copies: s.copies, reloaded: s.reloaded[rank], stageIndex: s.outline.Place, bytes: s.costs.ResidentOf(s.plan.Placement, rank), report: report}
	l.classes[memory.Resident] = l.bytes
	for _, b := range s.kept[rank] {
		bytes := s.bytes(b.size, b.stage, 0) * int64(s.plan.Microbatches)
		if s.sizes != nil {
			bytes = 0
			for microbatch := range s.plan.Microbatches {
				bytes += s.bytes(b.size, b.stage, microbatch)
			}
		}
		l.classes[b.class] += bytes
		l.bytes += bytes
	}
	report.Peak, report.Classes, report.PeakPosition = l.bytes, l.classes, -1
	return l
}

// peaks computes the peaks of a rank, which depend only on the order of its program. At each action of
// a body, the level changes by the same amount from each repeat to the next, except in the last two
// repeats, in which copies of weights may end. Therefore the peak is in the first repeat or in one of
// the last two. If microbatches have different costs, or an action takes reloaded state only in some
// repeats, peaks applies every repeat.
func (s *simulation) peaks(rank int, report *RankReport) {
	l, position := s.level(rank, report), int64(0)
	for _, segment := range s.plan.Programs[rank] {
		before, length := l, int64(len(segment.Body))
		l.applyBody(segment.Body, 0, position)
		from := max(segment.Repeat-2, 1)
		if s.sizes != nil || !l.uniformReloads(&segment) {
			from = 1
		}
		if n := int64(from - 1); n > 0 {
			for class := range l.classes {
				l.classes[class] += n * (l.classes[class] - before.classes[class])
			}
			l.bytes += n * (l.bytes - before.bytes)
			l.inFlight += n * (l.inFlight - before.inFlight)
			l.far += n * (l.far - before.far)
		}
		for r := from; r < segment.Repeat; r++ {
			l.applyBody(segment.Body, r*segment.Stride, position+int64(r)*length)
		}
		position += int64(segment.Repeat) * length
	}
}

// applyBody applies the actions of a body with shift added to their microbatches.
func (l *level) applyBody(body []schedule.Action, shift int, position int64) {
	for i := 0; i < len(body); i++ {
		a, at := body[i].Shift(shift), position+int64(i)
		if a.Joined() {
			i++
			l.apply(at, a, body[i].Shift(shift))
		} else {
			l.apply(at, a)
		}
	}
}

// apply applies an action or a joined pair, which begins at the given position, to the level.
func (l *level) apply(position int64, group ...schedule.Action) {
	for _, a := range group {
		l.allocate(l.s.holding(a))
	}
	l.updatePeaks(group[0], position)
	for _, a := range group {
		l.free(l.s.holding(a))
		l.endFar(a)
		l.endWeights(a)
	}
}

func (l *level) allocate(h *holding) {
	for i, bytes := range h.allocated {
		l.classes[int(firstHeld)+i] += bytes
	}
	l.bytes += h.allocatedBytes
	l.inFlight += h.started
	l.far += h.far
}

func (l *level) free(h *holding) {
	for i, bytes := range h.freed {
		l.classes[int(firstHeld)+i] -= bytes
	}
	l.bytes += h.netBytes - h.allocatedBytes
	l.inFlight -= h.finished
}

// updatePeaks compares the level with the peaks of the report.
func (l *level) updatePeaks(a schedule.Action, position int64) {
	if l.bytes > l.report.Peak || l.report.PeakPosition < 0 {
		l.report.Peak, l.report.Classes = l.bytes, l.classes
		l.report.PeakPosition, l.report.PeakAt = position, a.WithDrop(0).WithJoin(false)
	}
	l.report.InFlight = max(l.report.InFlight, l.inFlight)
	l.report.FarPeak = max(l.report.FarPeak, l.far)
}
