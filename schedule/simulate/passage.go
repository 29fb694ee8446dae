package simulate

import (
	"github.com/weir-ml/weir/internal/engine/effects"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
)

// passage is the message that a stage passes to an adjacent stage for each microbatch: its output for
// the next stage, or the gradient of its input for the previous stage.
type passage struct {
	from, to, edge      int  // the two stages, and the edge between them
	crosses             bool // the message goes to another rank
	sent, received      effects.BufferKind
	carries             quantity
	kinds               []schedule.Kind // the kinds of the computations that produce the message, and of those that read it
	send, receive, wait schedule.Kind
	waits               bool // the plan waits for the sends of the message
}

// newPassages returns the passages of the plan. It sets the buffers that hold them, and those of gathered
// weights and whole gradients.
func (s *simulation) newPassages() []passage {
	var list []passage
	for stage := range s.outline.Stages {
		if !s.outline.IsLast(stage) {
			list = append(list, passage{from: stage, to: stage + 1, edge: 2 * stage, sent: effects.SentOutput, received: effects.Input, carries: outputBytes,
				kinds: []schedule.Kind{schedule.F}, send: schedule.SendF, receive: schedule.RecvF, wait: schedule.WaitF})
		}
		if !s.outline.IsFirst(stage) && s.outline.HasBackward(stage-1) {
			list = append(list, passage{from: stage, to: stage - 1, edge: 2*stage + 1, sent: effects.SentGradient, received: effects.Gradient, carries: gradientBytes,
				kinds: []schedule.Kind{schedule.B, schedule.I}, send: schedule.SendB, receive: schedule.RecvB, wait: schedule.WaitB})
		}
	}
	s.buffers = make([][effects.NumBufferKinds]buffer, s.outline.Stages)
	for stage := range s.buffers {
		s.buffers[stage][effects.Gathered] = buffer{memory.Unsharded, weightBytes, stage}
		if s.outline.Includes(stage, schedule.ZeroGrad) {
			s.buffers[stage][effects.Accumulator] = buffer{memory.Unsharded, weightGradientBytes, stage}
		}
	}
	for i := range list {
		passage := &list[i]
		passage.crosses = s.links.Of[passage.edge] >= 0
		b := buffer{memory.Activation, passage.carries, passage.from}
		if passage.sent == effects.SentGradient {
			b.class = memory.ActGrad
		}
		if passage.crosses {
			s.buffers[passage.from][passage.sent] = b
			b.class = memory.Transfer // the message is in a receive buffer
		}
		s.buffers[passage.to][passage.received] = b
	}
	return list
}
