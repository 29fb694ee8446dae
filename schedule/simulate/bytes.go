package simulate

import (
	"github.com/weir-ml/weir/internal/effects"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/internal/repeats"
)

// The classes that actions allocate and free are consecutive.
const (
	firstHeld = memory.Activation
	numHeld   = int(memory.Unsharded-firstHeld) + 1
)

// holding holds the bytes that an action of one kind on one stage allocates and frees.
type holding struct {
	born, dies   [numHeld]int64 // bytes by class
	up, change   int64          // the sums over all classes of born, and of born minus dies
	begins, ends int64          // the changes of the number of microbatches in flight on the stage
	far          int64          // bytes allocated in far memory
}

// buffer is the class and size of one place of a stage for a microbatch.
type buffer struct {
	class memory.Class
	bytes int64
}

// begin adds a buffer that the action allocates, and end adds a buffer that it frees.
func (h *holding) begin(b buffer) {
	if b.bytes > 0 {
		h.born[b.class-firstHeld] += b.bytes
		h.up += b.bytes
		h.change += b.bytes
	}
}

func (h *holding) end(b buffer) {
	if b.bytes > 0 {
		h.dies[b.class-firstHeld] += b.bytes
		h.change -= b.bytes
	}
}

// hold fills in the holdings of a stage. I frees a part of the saved state and allocates a carry; W
// frees the carry and the rest of the saved state.
func (s *simulation) hold(stage int) {
	costs := s.costs.Of(stage)
	for kind := schedule.F; kind <= schedule.WaitReduce; kind++ {
		e, h := effects.OfKind(s.plan, stage, kind), &s.holdings[tableIndex(stage, kind)]
		if kind == schedule.F {
			h.begins = 1
			h.begin(buffer{memory.Saved, costs.Saved})
		}
		if e.Last {
			h.ends = 1
		}
		switch kind {
		case schedule.Offload:
			h.far = costs.away()
			continue
		case schedule.WaitOffload:
			h.end(buffer{memory.Saved, costs.away()})
			continue
		case schedule.Reload:
			h.begin(buffer{memory.Saved, costs.away()})
			continue
		}
		h.begin(s.buffers[e.Stage][e.To])
		for ends := e.Ends; ends != 0; ends &= ends - 1 {
			switch place := ends.First(); {
			case place != effects.Saved:
				h.end(s.buffers[stage][place])
			case !e.Last:
				h.end(buffer{memory.Saved, costs.FreedByI})
				h.begin(buffer{memory.Carry, costs.Carry})
			case kind == schedule.W:
				h.end(buffer{memory.Saved, costs.Saved - costs.FreedByI})
				h.end(buffer{memory.Carry, costs.Carry})
			default:
				h.end(buffer{memory.Saved, costs.Saved})
			}
		}
	}
}

// cross fills in the buffers of a message in a plan that does not wait for its sends, or has no
// sends.
func (s *simulation) cross(p *passage) {
	sent, received := s.buffers[p.from][p.sent], s.buffers[p.to][p.received]
	if s.transfers {
		s.holdings[tableIndex(p.from, p.send)].end(sent)
		return
	}
	for _, kind := range p.kinds {
		s.holdings[tableIndex(p.from, kind)].end(sent)
		s.holdings[tableIndex(p.to, kind)].begin(received)
	}
}

// level is the live memory of a rank.
type level struct {
	holdings []holding // by stage and kind
	copies   []copying // copies of weights, by stage; nil if the plan makes none
	classes  memory.ByClass
	bytes    int64 // the sum over all classes
	flight   int64
	far      int64          // bytes in far memory
	reloaded []repeats.Runs // by the rank's stages: the microbatches whose saved state is reloaded; nil if there are none
	place    []int          // by stage: its index among the stages of the rank

	report *RankReport // receives the peaks
}

// level returns the level of a rank before its first action. The level records its peaks in the
// report.
func (s *simulation) level(rank int, report *RankReport) level {
	l := level{holdings: s.holdings, copies: s.copies, reloaded: s.reloaded[rank], place: s.Place, bytes: s.costs.ResidentOf(s.plan.Placement, rank), report: report}
	l.classes[memory.Resident] = l.bytes
	report.Peak, report.Classes, report.PeakPosition = l.bytes, l.classes, -1
	return l
}

// peaks computes the peaks of a rank, which depend only on the order of its program. The level at
// an action of a body changes by the same amount from each repeat to the next. Therefore the peak
// is in the first, the second last or the last repeat; copies of weights may end during the last
// two.
func (s *simulation) peaks(rank int, report *RankReport) {
	l, position := s.level(rank, report), int64(0)
	for _, segment := range s.plan.Programs[rank] {
		before, length := l, int64(len(segment.Body))
		l.body(segment.Body, 0, position)
		from := max(segment.Repeat-2, 1)
		if !l.even(&segment) {
			from = 1
		}
		if n := int64(from - 1); n > 0 {
			for class := range l.classes {
				l.classes[class] += n * (l.classes[class] - before.classes[class])
			}
			l.bytes += n * (l.bytes - before.bytes)
			l.flight += n * (l.flight - before.flight)
			l.far += n * (l.far - before.far)
		}
		for r := from; r < segment.Repeat; r++ {
			l.body(segment.Body, r*segment.Stride, position+int64(r)*length)
		}
		position += int64(segment.Repeat) * length
	}
}

// body applies the actions of a body with shift added to their microbatches.
func (l *level) body(body []schedule.Action, shift int, position int64) {
	for i := 0; i < len(body); i++ {
		a := body[i]
		if a.Joined() {
			l.pair(a.Shift(shift), body[i+1].Shift(shift), position+int64(i))
			i++
		} else {
			l.action(a.Shift(shift), position+int64(i))
		}
	}
}

// of returns the holding of an action, or nil if its kind is not in the tables.
func (l *level) of(a schedule.Action) *holding {
	if a.Kind() > schedule.WaitReduce {
		return nil
	}
	return &l.holdings[tableIndex(a.Stage(), a.Kind())]
}

// action applies an action to the level.
func (l *level) action(a schedule.Action, position int64) {
	if h := l.of(a); h != nil {
		l.begin(h)
		l.compare(a, position)
		l.end(h)
		l.endFar(a)
		l.endWeights(a)
	} else if a.Kind() == schedule.Quantize && l.copies != nil {
		c := &l.copies[a.Stage()]
		l.classes[memory.FP8] += c.forward + c.backward
		l.bytes += c.forward + c.backward
		l.compare(a, position)
	}
}

// pair applies a joined pair whose first action is at the given position.
func (l *level) pair(a, b schedule.Action, position int64) {
	first, second := l.of(a), l.of(b)
	l.begin(first)
	l.begin(second)
	l.compare(a, position)
	l.end(first)
	l.end(second)
	l.endFar(a)
	l.endFar(b)
	l.endWeights(a)
	l.endWeights(b)
}

func (l *level) begin(h *holding) {
	for i, bytes := range h.born {
		l.classes[int(firstHeld)+i] += bytes
	}
	l.bytes += h.up
	l.flight += h.begins
	l.far += h.far
}

func (l *level) end(h *holding) {
	for i, bytes := range h.dies {
		l.classes[int(firstHeld)+i] -= bytes
	}
	l.bytes += h.change - h.up
	l.flight -= h.ends
}

// compare updates the peaks.
func (l *level) compare(a schedule.Action, position int64) {
	if l.bytes > l.report.Peak || l.report.PeakPosition < 0 {
		l.report.Peak, l.report.Classes = l.bytes, l.classes
		l.report.PeakPosition, l.report.PeakAt = position, a.WithDrop(0).WithJoin(false)
	}
	l.report.InFlight = max(l.report.InFlight, l.flight)
	l.report.FarPeak = max(l.report.FarPeak, l.far)
}
