package runner

import (
	"context"
	"fmt"

	"github.com/weir-ml/weir/internal/engine/effects"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/transport"
)

// transfer runs an action that does not call a stage: it moves tensors to or from other ranks,
// replicas or far memory, or makes room for them. A received tensor becomes the stage's input, or
// the gradient of its output. A sent tensor stays in the frames' outbox from the call that made it
// until the wait (L4).
func (r *worker[T]) transfer(ctx context.Context, action schedule.Action, e *effects.Effects) error {
	s, m := action.Stage(), action.Microbatch()
	st := &r.calls.Stages[s]
	r.calls.Frames.Act(s, m)
	if action.Kind() <= schedule.WaitB && r.links.transport == nil {
		return fmt.Errorf("runner: %v without a rank to transfer to", action.Kind())
	}
	switch kind := action.Kind(); kind {
	case schedule.SendF:
		return r.send(ctx, st.After, action, effects.SentOutput, 0)
	case schedule.SendB:
		return r.send(ctx, st.Before, action, effects.SentGradient, st.NoGradIn)
	case schedule.WaitF:
		return r.links.wait(ctx, st.After, r.tag(action))
	case schedule.WaitB:
		return r.links.wait(ctx, st.Before, r.tag(action))
	case schedule.RecvF:
		h, err := r.links.receive(ctx, st.Before, r.tag(action), len(st.In), 0)
		if err != nil {
			return err
		}
		return r.calls.Frames.PutAt(e.To, int(e.Stage), m, h, 0)
	case schedule.RecvB:
		h, err := r.links.receive(ctx, st.After, r.tag(action), len(st.Out), st.NoGradOut)
		if err != nil {
			return err
		}
		return r.calls.Frames.PutAt(e.To, int(e.Stage), m, h, st.NoGradOut)
	case schedule.Offload:
		return r.calls.Frames.Offload(s, m)
	case schedule.WaitOffload:
		return r.calls.Frames.WaitOffload(ctx, s, m)
	case schedule.Reload:
		r.running.expected[e.To]-- // act has counted the frame, which is already open
		return r.calls.Frames.Reload(s, m)
	case schedule.Unshard:
		if err := r.params.makeWhole(e.To, s); err != nil || r.params.shared == nil {
			return err
		}
		return r.params.shared.Gather(ctx, s)
	case schedule.Reshard:
		if r.params.shared != nil {
			return r.params.shared.WaitGathered(s)
		}
		return nil
	case schedule.ZeroGrad:
		return r.params.makeWhole(e.To, s)
	case schedule.ReduceGrad:
		if err := r.params.zeroUnwritten(s); err != nil || r.params.shared == nil {
			return err
		}
		return r.params.shared.Reduce(ctx, s)
	case schedule.WaitReduce:
		if r.params.shared == nil {
			return nil
		}
		if err := r.waitReduced(s); err != nil {
			return err
		}
		return r.params.shared.WithdrawGradients(ctx, s)
	default:
		return fmt.Errorf("runner: %v is not supported", kind)
	}
}

// tag returns the tag of the transfer that an action starts, waits for or receives.
func (r *worker[T]) tag(action schedule.Action) transport.Tag {
	tag := transport.Tag{Step: r.step, Stage: action.Stage(), Microbatch: action.Microbatch()}
	switch action.Kind() {
	case schedule.RecvF:
		tag.Stage--
	case schedule.SendB, schedule.WaitB:
		tag.Content = transport.Gradient
	case schedule.RecvB:
		tag.Content = transport.Gradient
		tag.Stage++
	}
	return tag
}

// send sends an action's tensors from the outbox, omitting ports without a gradient.
func (r *worker[T]) send(ctx context.Context, to int, action schedule.Action, place effects.BufferKind, none uint64) error {
	lent, err := r.calls.Frames.Outgoing(action.Stage(), action.Microbatch(), place, r.links.lent[:0], none)
	if err == nil {
		err = r.links.send(ctx, to, r.tag(action), lent)
	}
	clear(lent)
	r.links.lent = lent
	return err
}
