package main

import (
	"context"
	"slices"
	"time"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/stages"
)

// meter is a stage that notes how long its calls take and how large what it returns is.
type meter struct {
	stages.Stage[kernels.Buffer]
	split     stages.SplitBackward[kernels.Buffer]
	quantizer stages.Quantizer[kernels.Buffer] // nil where the stage has none
	dev       kernels.Device

	counts           bool // what is run now
	took             map[schedule.Kind][]time.Duration
	output, gradient int64 // bytes that the last calls returned
}

// newMeter wraps a stage, which must be able to split its backward.
func newMeter(stage stages.Stage[kernels.Buffer], dev kernels.Device) *meter {
	quantizer, _ := stages.As[stages.Quantizer[kernels.Buffer]](stage)
	return &meter{
		Stage: stage, split: stage.(stages.SplitBackward[kernels.Buffer]), quantizer: quantizer, dev: dev,
		took: map[schedule.Kind][]time.Duration{},
	}
}

// Unwrap returns the stage.
func (m *meter) Unwrap() stages.Stage[kernels.Buffer] { return m.Stage }

// Forward is the stage's.
func (m *meter) Forward(ctx context.Context, mb *batchctx.Microbatch[kernels.Buffer], in, out []kernels.Buffer) error {
	defer m.note(schedule.F, time.Now())
	err := m.Stage.Forward(ctx, mb, in, out)
	m.output = m.bytes(out)
	return err
}

// QuantizeWeights is the stage's. One whose declaration has no copies is never asked.
func (m *meter) QuantizeWeights(ctx context.Context, q *batchctx.Quantization[kernels.Buffer], forward, backward []kernels.Buffer) error {
	defer m.note(schedule.Quantize, time.Now())
	return m.quantizer.QuantizeWeights(ctx, q, forward, backward)
}

// Backward is the stage's.
func (m *meter) Backward(ctx context.Context, mb *batchctx.Microbatch[kernels.Buffer], gradOut, gradIn []kernels.Buffer) error {
	defer m.note(schedule.B, time.Now())
	return m.Stage.Backward(ctx, mb, gradOut, gradIn)
}

// BackwardInput is the stage's.
func (m *meter) BackwardInput(ctx context.Context, mb *batchctx.Microbatch[kernels.Buffer], gradOut, gradIn []kernels.Buffer) error {
	defer m.note(schedule.I, time.Now())
	err := m.split.BackwardInput(ctx, mb, gradOut, gradIn)
	m.gradient = m.bytes(gradIn)
	return err
}

// BackwardWeight is the stage's.
func (m *meter) BackwardWeight(ctx context.Context, mb *batchctx.Microbatch[kernels.Buffer]) error {
	defer m.note(schedule.W, time.Now())
	return m.split.BackwardWeight(ctx, mb)
}

func (m *meter) note(kind schedule.Kind, begin time.Time) {
	if m.counts {
		m.took[kind] = append(m.took[kind], time.Since(begin))
	}
}

func (m *meter) bytes(buffers []kernels.Buffer) (n int64) {
	for _, b := range buffers {
		n += m.dev.Bytes(b)
	}
	return n
}

// nanoseconds returns the median of a kind of call.
func (m *meter) nanoseconds(kind schedule.Kind) int64 { return median(m.took[kind]).Nanoseconds() }

// median returns the upper median, 0 of none. It sorts the list.
func median(list []time.Duration) time.Duration {
	if len(list) == 0 {
		return 0
	}
	slices.Sort(list)
	return list[len(list)/2]
}
