package runner

import (
	"context"
	"fmt"

	batchctx "github.com/weir-ml/weir/context"
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
	place, backward := &profile.QuantizeEval, t.hasBackward(st)
	if backward {
		place = &profile.Quantize
	}
	tape := t.tapeOf(s, profile)
	if *place != nil {
		tape.again = births(*place)
	}
	err := tape.record(schedule.Quantize.String(), func() error { return runner.makeWeights(ctx, s, backward) })
	if err != nil {
		return err
	}
	made := &layout.Call{Events: tape.events}
	var names []string
	runner.frames.Copies(s, func(w batchctx.WeightCopy, h T) {
		made.Out = append(made.Out, tape.handed(h))
		names = append(names, w.String())
		if w.At == batchctx.AtForward {
			made.Forward++
		}
	})
	if err := tape.settled(fmt.Sprintf("stage %d (%s)", s, st.spec.Name)); err != nil {
		return err
	}
	if *place == nil {
		tape.name(made.Out, runner.frames.Slots(s, 0), func(i int) string { return names[i] })
	} else if err := again(*place, made); err != nil {
		return err
	}
	*place, profile.Buffers, t.tables[s] = made, tape.buffers, tape.tables
	return nil
}
