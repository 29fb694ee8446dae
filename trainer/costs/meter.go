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

// meter is a stage that records the durations of its calls and the sizes of their results.
type meter[T any] struct {
	stages.Stage[T]
	quantizer stages.Quantizer[T] // nil if the stage is not one
	space     memory.Space[T]

	counts           bool // the current step is measured
	took             map[schedule.Kind][]time.Duration
	output, gradient int64 // bytes of the last output, and of the last gradient
}

// splitMeter is the meter of a stage that splits its backward.
type splitMeter[T any] struct {
	*meter[T]
	split stages.SplitBackward[T]
}

// newMeter wraps a stage. The second result is the stage to run; it splits its backward if the wrapped
// stage does.
func newMeter[T any](stage stages.Stage[T], space memory.Space[T]) (*meter[T], stages.Stage[T]) {
	quantizer, _ := stages.As[stages.Quantizer[T]](stage)
	m := &meter[T]{Stage: stage, quantizer: quantizer, space: space, took: map[schedule.Kind][]time.Duration{}}
	if stage == nil {
		return m, nil // the runner rejects a nil stage
	}
	if split, ok := stage.(stages.SplitBackward[T]); ok {
		return m, &splitMeter[T]{m, split}
	}
	return m, m
}

// Unwrap returns the wrapped stage.
func (m *meter[T]) Unwrap() stages.Stage[T] { return m.Stage }

// Forward measures the stage's Forward.
func (m *meter[T]) Forward(ctx context.Context, mb batchctx.Microbatch[T], in, out []T) error {
	defer m.note(schedule.F, time.Now())
	err := m.Stage.Forward(ctx, mb, in, out)
	m.output = m.bytes(out)
	return err
}

// QuantizeWeights measures the stage's QuantizeWeights, which is called only if the stage
// declares WeightCopies.
func (m *meter[T]) QuantizeWeights(ctx context.Context, q batchctx.Quantization[T]) error {
	defer m.note(schedule.Quantize, time.Now())
	return m.quantizer.QuantizeWeights(ctx, q)
}

// Backward measures the stage's Backward.
func (m *meter[T]) Backward(ctx context.Context, mb batchctx.Microbatch[T], gradOut, gradIn []T) error {
	kind := schedule.B
	if m.Spec().Frozen {
		kind = schedule.I // the kind it has in a plan
	}
	defer m.note(kind, time.Now())
	err := m.Stage.Backward(ctx, mb, gradOut, gradIn)
	m.gradient = m.bytes(gradIn)
	return err
}

// BackwardInput measures the stage's BackwardInput.
func (m *splitMeter[T]) BackwardInput(ctx context.Context, mb batchctx.Microbatch[T], gradOut, gradIn []T) error {
	defer m.note(schedule.I, time.Now())
	err := m.split.BackwardInput(ctx, mb, gradOut, gradIn)
	m.gradient = m.bytes(gradIn)
	return err
}

// BackwardWeight measures the stage's BackwardWeight.
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

// nanoseconds returns the median duration of a kind of call.
func (m *meter[T]) nanoseconds(kind schedule.Kind) int64 { return median(m.took[kind]).Nanoseconds() }

// median returns the upper median, or 0 for an empty list. It sorts the list.
func median(list []time.Duration) time.Duration {
	if len(list) == 0 {
		return 0
	}
	slices.Sort(list)
	return list[len(list)/2]
}
