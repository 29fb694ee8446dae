package costs

import (
	"context"
	"slices"
	"time"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/stages"
)

// meter is a stage that notes how long its calls take and how large what it returns is.
type meter[T any] struct {
	stages.Stage[T]
	quantizer stages.Quantizer[T] // nil where the stage has none
	space     memory.Space[T]

	counts           bool // what is run now
	took             map[schedule.Kind][]time.Duration
	output, gradient int64 // bytes that the last calls returned
}

// splitMeter is the meter of a stage that splits its backward.
type splitMeter[T any] struct {
	*meter[T]
	split stages.SplitBackward[T]
}

// newMeter wraps a stage. The second result is what a runner runs, which splits its backward
// if the stage does.
func newMeter[T any](stage stages.Stage[T], space memory.Space[T]) (*meter[T], stages.Stage[T]) {
	quantizer, _ := stages.As[stages.Quantizer[T]](stage)
	m := &meter[T]{Stage: stage, quantizer: quantizer, space: space, took: map[schedule.Kind][]time.Duration{}}
	if stage == nil {
		return m, nil // which a runner refuses
	}
	if split, ok := stage.(stages.SplitBackward[T]); ok {
		return m, &splitMeter[T]{m, split}
	}
	return m, m
}

// Unwrap returns the stage.
func (m *meter[T]) Unwrap() stages.Stage[T] { return m.Stage }

// Forward is the stage's.
func (m *meter[T]) Forward(ctx context.Context, mb batchctx.Microbatch[T], in, out []T) error {
	defer m.note(schedule.F, time.Now())
	err := m.Stage.Forward(ctx, mb, in, out)
	m.output = m.bytes(out)
	return err
}

// QuantizeWeights is the stage's. One whose declaration has no copies is never asked.
func (m *meter[T]) QuantizeWeights(ctx context.Context, q batchctx.Quantization[T]) error {
	defer m.note(schedule.Quantize, time.Now())
	return m.quantizer.QuantizeWeights(ctx, q)
}

// Backward is the stage's.
func (m *meter[T]) Backward(ctx context.Context, mb batchctx.Microbatch[T], gradOut, gradIn []T) error {
	kind := schedule.B
	if m.Spec().Frozen {
		kind = schedule.I // as which a plan has it
	}
	defer m.note(kind, time.Now())
	err := m.Stage.Backward(ctx, mb, gradOut, gradIn)
	m.gradient = m.bytes(gradIn)
	return err
}

// BackwardInput is the stage's.
func (m *splitMeter[T]) BackwardInput(ctx context.Context, mb batchctx.Microbatch[T], gradOut, gradIn []T) error {
	defer m.note(schedule.I, time.Now())
	err := m.split.BackwardInput(ctx, mb, gradOut, gradIn)
	m.gradient = m.bytes(gradIn)
	return err
}

// BackwardWeight is the stage's.
func (m *splitMeter[T]) BackwardWeight(ctx context.Context, mb batchctx.Microbatch[T]) error {
	defer m.note(schedule.W, time.Now())
	return m.split.BackwardWeight(ctx, mb)
}

func (m *meter[T]) note(kind schedule.Kind, begin time.Time) {
	if m.counts {
		m.took[kind] = append(m.took[kind], time.Since(begin))
	}
}

func (m *meter[T]) bytes(buffers []T) (n int64) {
	for _, b := range buffers {
		n += m.space.Bytes(b)
	}
	return n
}

// nanoseconds returns the median of a kind of call.
func (m *meter[T]) nanoseconds(kind schedule.Kind) int64 { return median(m.took[kind]).Nanoseconds() }

// median returns the upper median, 0 of none. It sorts the list.
func median(list []time.Duration) time.Duration {
	if len(list) == 0 {
		return 0
	}
	slices.Sort(list)
	return list[len(list)/2]
}
