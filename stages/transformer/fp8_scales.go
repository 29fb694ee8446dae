package transformer

import (
	"context"
	"errors"
	"fmt"

	"github.com/weir-ml/weir/fp8"
	"github.com/weir-ml/weir/kernels"
)

// ErrUnrolled is returned by Update if the scales of the preceding step were not rolled, because
// delayed scaling would then never update its scales.
var ErrUnrolled = errors.New("transformer: the scales of the step were not rolled")

// scaling is the scaling state of a model in FP8: one fp8.State and, for each device, a slab with
// the scales and tallies of the tensors that are quantized there.
type scaling struct {
	state     *fp8.State
	byDevice  []*scales
	measuring []*lines
	tallies   []fp8.Tally // by slot
}

// scales holds the scales of one device.
type scales struct {
	dev   kernels.Device
	slots []int // by line
	slab  *fp8.Slab
}

// lines identifies the lines of a slab in which one block records its measurements.
type lines struct {
	scales       *scales
	first, count int
	measured     bool // the block has measured in this step, or in an abandoned one
}

// begin begins the block's part of a step. It discards the measurements of a previous step that
// failed and was never rolled.
func (l *lines) begin() error {
	if l.measured {
		return l.scales.slab.Forget(l.first, l.count)
	}
	l.measured = true
	return nil
}

// scales returns the scales of the builder's device.
func (b *builder) scales() *scales {
	for _, s := range b.byDevice {
		if s.dev == kernels.Device(b.dev) {
			return s
		}
	}
	s := &scales{dev: b.dev}
	b.byDevice = append(b.byDevice, s)
	return s
}

// quantity adds a tensor with the given number of columns.
func (b *builder) quantity(name string, role fp8.Role, cols int) quantity {
	slot, known := b.bySlot[name]
	if !known {
		slot = len(b.slots)
		b.bySlot[name] = slot
		b.slots = append(b.slots, fp8.Slot{Name: name, Role: role})
	}
	s := b.scales()
	s.slots = append(s.slots, slot)
	return quantity{
		name: name, cols: cols, encoding: b.cfg.FP8.Encoding(role), op: b.cfg.FP8.Quantize(role),
		key: kernels.OpKey(name), scales: s, line: len(s.slots) - 1, repeated: known && role == fp8.Weight,
	}
}

// scaling makes the state and the slabs, once all blocks are made.
func (b *builder) scaling() (*scaling, error) {
	state, err := fp8.NewState(b.cfg.FP8, b.slots)
	if err != nil {
		return nil, fmt.Errorf("transformer: %w", err)
	}
	s := &scaling{state: state, byDevice: b.byDevice, measuring: b.measuring, tallies: make([]fp8.Tally, len(b.slots))}
	for _, on := range s.byDevice {
		if on.slab, err = fp8.NewSlab(on.dev, state, on.slots); err != nil {
			_ = s.close() // the first error is reported
			return nil, fmt.Errorf("transformer: %w", err)
		}
	}
	return s, nil
}

// close releases the slabs.
func (s *scaling) close() error {
	if s == nil {
		return nil
	}
	var faults []error
	for _, on := range s.byDevice {
		if on.slab != nil {
			faults = append(faults, on.slab.Close())
		}
	}
	return errors.Join(faults...)
}

// load writes the next step's scales to the slabs.
func (s *scaling) load() error {
	for _, on := range s.byDevice {
		if err := on.slab.Load(s.state); err != nil {
			return err
		}
	}
	for _, l := range s.measuring {
		l.measured = false
	}
	return nil
}

// RollScales ends the measurement of a step of a model in FP8: it merges the tallies of all
// microbatches on all devices and, through reduce, in all processes; then it rolls the histories
// once, which computes the next step's scales. Call it after each Step that returned a result and
// before Update, but not after a failed step, whose measurements are discarded. A nil reduce
// means a single process. It waits for the devices. Without FP8 it does nothing.
func (m *Model) RollScales(ctx context.Context, reduce fp8.Reducer) (fp8.Statistics, error) {
	s := m.scaling
	if s == nil {
		return fp8.Statistics{}, nil
	}
	clear(s.tallies)
	for _, on := range s.byDevice {
		if err := on.slab.Collect(s.tallies); err != nil {
			return fp8.Statistics{}, fmt.Errorf("transformer: rolling scales: %w", err)
		}
	}
	if reduce != nil {
		if err := reduce.ReduceTallies(ctx, s.tallies); err != nil {
			return fp8.Statistics{}, fmt.Errorf("transformer: reducing tallies: %w", err)
		}
	}
	report, err := s.state.End(s.tallies)
	if err == nil {
		err = s.load()
	}
	if err != nil {
		return report, fmt.Errorf("transformer: rolling scales: %w", err)
	}
	return report, nil
}

// unrolled returns an error if a step recorded measurements that were not rolled.
func (s *scaling) unrolled() error {
	if s != nil {
		for _, l := range s.measuring {
			if l.measured {
				return fmt.Errorf("%w: call RollScales after Step and before Update", ErrUnrolled)
			}
		}
	}
	return nil
}

// MarshalScales returns the scales and histories for a checkpoint, or nil without FP8. Equal
// states give equal bytes. Call it between steps.
func (m *Model) MarshalScales() ([]byte, error) {
	if m.scaling == nil {
		return nil, nil
	}
	return m.scaling.state.MarshalBinary()
}

// UnmarshalScales sets the scales and histories to those that MarshalScales returned for a model
// with the same blocks and the same recipe. For any other data the error wraps fp8.ErrState, and
// nothing has changed.
func (m *Model) UnmarshalScales(data []byte) error {
	if m.scaling == nil {
		if len(data) == 0 {
			return nil
		}
		return fmt.Errorf("transformer: %w: a checkpoint of scales for a model in float32", fp8.ErrState)
	}
	if err := m.scaling.state.UnmarshalBinary(data); err != nil {
		return fmt.Errorf("transformer: %w", err)
	}
	return m.scaling.load()
}
