package runner

import (
	"context"
	"fmt"

	"github.com/weir-ml/weir/internal/effects"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/layout"
)

// quantize records QUANTIZE, and leaves the copies of weights with the context, where
// the calls of the stage find them until the trip is over.
func (t *trip[T]) quantize(ctx context.Context, s int) error {
	runner := t.at(s)
	st, profile := &runner.stages[s], &t.profile[s]
	if st.quantizer == nil {
		return nil
	}
	place, backward := &profile.QuantizeEval, []T(nil)
	if t.hasBackward(st) {
		place, backward = &profile.Quantize, st.backward
	}
	tape := t.tapeOf(s, profile)
	if *place != nil {
		tape.again = births(*place)
	}
	err := tape.record(schedule.Quantize.String(), func() error { return runner.makeWeights(ctx, s, backward) })
	if err != nil {
		return err
	}
	made := &layout.Call{Events: tape.events, Forward: len(st.forward)}
	unmade := 0
	if backward != nil {
		unmade = runner.context.Unmade(s)
	}
	made.Out = append(tape.handedAll(st.forward, 0), tape.handedAll(backward[unmade:], 0)...)
	if err := tape.settled(fmt.Sprintf("stage %d (%s)", s, st.spec.Name)); err != nil {
		return err
	}
	if *place == nil {
		tape.name(made.Out, runner.context.Slots(s, 0), func(i int) string {
			if i < made.Forward {
				return st.spec.ForwardWeights[i] + " for the forward"
			}
			return st.spec.BackwardWeights[unmade+i-made.Forward] + " for the backward"
		})
	} else if err := again(*place, made); err != nil {
		return err
	}
	*place, profile.Buffers, t.tables[s] = made, tape.buffers, tape.tables
	if err := runner.context.PutAt(effects.ForwardWeights, s, 0, st.forward, 0); err != nil || backward == nil {
		return err
	}
	return runner.context.PutAt(effects.BackwardWeights, s, 0, backward, 0)
}
