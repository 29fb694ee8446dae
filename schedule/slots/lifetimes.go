package slots

import (
	"github.com/weir-ml/weir/internal/engine/effects"
	"github.com/weir-ml/weir/schedule"
)

// class holds the properties that determine the pool of a tensor on its rank.
type class struct {
	tensor    Tensor
	direction Direction
	stage     int
}

// in returns the part of the class that all tensors of a pool share.
func (c class) in(pooling Pooling) class {
	switch pooling {
	case ByDirection:
		c.stage = -1
	case ByRank:
		c.stage, c.direction = -1, ""
	}
	return c
}

// holding is a kind of buffer that a stage holds, one for each microbatch.
type holding struct {
	place effects.BufferKind
	stage int32
}

// birth is a tensor that an action writes.
type birth struct {
	class
	at holding
}

// step holds the births and the deaths at an action, which depend only on its stage and kind. The births
// come first.
type step struct {
	births []birth
	deaths []holding
}

// steps returns the steps of a plan, by stage and kind.
func steps(plan *schedule.Plan, hold Hold) [][schedule.NumKinds]step {
	list := make([][schedule.NumKinds]step, plan.Placement.Stages())
	for stage := range list {
		for kind := range schedule.Kind(schedule.NumKinds) {
			list[stage][kind] = stepOf(plan, hold, stage, kind)
		}
	}
	return list
}

func stepOf(plan *schedule.Plan, hold Hold, stage int, kind schedule.Kind) (s step) {
	e := effects.OfKind(plan, stage, kind)
	to := holding{e.To, e.Stage}
	switch kind {
	case schedule.RecvF:
		s.births = append(s.births, birth{class{Received, Forward, stage}, to})
	case schedule.RecvB:
		s.births = append(s.births, birth{class{Received, Backward, stage}, to})
	case schedule.F:
		s.births = append(s.births, birth{class{Outputs, Forward, stage}, to})
		if !e.Last {
			s.births = append(s.births, birth{class{Saved, Forward, stage}, holding{effects.Saved, int32(stage)}})
		}
	case schedule.B, schedule.I:
		if e.To != effects.None {
			s.births = append(s.births, birth{class{Gradients, Backward, stage}, to})
		}
	}
	ends := e.Due & (1<<effects.Input | 1<<effects.Gradient | 1<<effects.Saved | 1<<effects.SentOutput | 1<<effects.SentGradient | 1<<effects.Output)
	if given := effects.Set(1<<effects.Input | 1<<effects.Gradient); hold == Last {
		ends &^= given
		if e.Last {
			ends |= given
		}
	}
	for ; ends != 0; ends &= ends - 1 {
		s.deaths = append(s.deaths, holding{ends.First(), int32(stage)})
	}
	return s
}
