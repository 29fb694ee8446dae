package draw

import (
	"github.com/weir-ml/weir/internal/engine/effects"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/simulate"
)

// level is the amount that a rank holds from a given time.
type level struct {
	from int64
	live float64
}

// curve is the amount that a rank holds over time, and its maximum.
type curve struct {
	levels []level
	peak   float64
}

// curves returns the amount that each rank holds over time, starting at time begin. If the events have
// live bytes, the amount is in bytes, or in microbatches if Step.Microbatch is set. Otherwise it is the
// number of microbatches in flight. On each stage, a microbatch is in flight from its F to the end of its
// backward, and counts as 1 divided by the number of stages that it visits on the rank. While an action
// runs, the curve shows the larger of the amounts before and after it. The second result reports whether the
// amounts are in bytes.
func (s *Step) curves(begin int64) (curves []curve, bytes bool) {
	for _, list := range s.Events {
		for _, e := range list {
			bytes = bytes || e.Live.Total() != 0
		}
	}
	for rank := range s.Events {
		if bytes {
			curves = append(curves, s.bytes(rank, begin))
		} else {
			curves = append(curves, s.inFlight(rank))
		}
	}
	return curves, bytes && s.Microbatch == 0
}

// bytes returns the bytes that are live on a rank, divided by Step.Microbatch if it is set.
func (s *Step) bytes(rank int, begin int64) curve {
	var c curve
	unit := float64(max(s.Microbatch, 1))
	for i, e := range s.Events[rank] {
		if resident := e.Live[memory.Resident]; i == 0 && resident > 0 {
			c.levels = append(c.levels, level{begin, float64(resident) / unit})
		}
		c.move(e, float64(e.Live.Total())/unit)
	}
	if s.Peaks != nil {
		c.peak = float64(s.Peaks[rank]) / unit
	}
	return c
}

// inFlight returns the microbatches in flight on a rank.
func (s *Step) inFlight(rank int) curve {
	var c curve
	place := s.Plan.Placement
	copies, depth := max(place.Copies, 1), max(place.Depth(), 1)
	stages, inFlight := make([]int, copies), make([]int, copies) // by copy: the stages of the rank, and the microbatches in flight on them
	for _, stage := range place.On(rank) {
		stages[min(stage/depth, copies-1)]++
	}
	for i, e := range s.Events[rank] {
		stage := e.Action.Stage()
		modelCopy := min(stage/depth, copies-1)
		if e.Action.Kind() == schedule.F {
			inFlight[modelCopy]++
		}
		if effects.OfKind(s.Plan, stage, e.Action.Kind()).Last {
			inFlight[modelCopy]--
		}
		if e.Action.Joined() && i < len(s.Events[rank])-1 {
			continue
		}
		live := 0.0
		for modelCopy, n := range inFlight {
			live += float64(n) / float64(max(stages[modelCopy], 1))
		}
		c.move(e, live)
	}
	return c
}

// move extends the curve to the end of an event, with the amount after it.
func (c *curve) move(e simulate.TimedAction, after float64) {
	before := 0.0
	if n := len(c.levels); n > 0 {
		before = c.levels[n-1].live
	}
	c.peak = max(c.peak, after)
	from := e.End
	switch {
	case after == before:
		return
	case after > before:
		from = e.Start
	}
	if n := len(c.levels); n > 0 && c.levels[n-1].from == from {
		c.levels = c.levels[:n-1] // its duration is 0
	}
	c.levels = append(c.levels, level{from, after})
}
