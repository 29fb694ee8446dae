package fp8

import (
	"fmt"
	"math"

	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
)

// Slab is what a device has of a state: the scales of the running step and a tally for
// each slot that is used there, in one buffer of scope [memory.Metadata]. The tallies
// come after the scales.
type Slab struct {
	dev    kernels.Device
	slots  []int  // by line: the slot of the state
	known  []bool // by line: the slot has a history to be scaled by
	buffer kernels.Buffer
	words  []int32
}

// NewSlab allocates the slab of the given slots, a line for each, with the scales of the
// state. The caller closes it. It is for the goroutine of the device.
func NewSlab(dev kernels.Device, state *State, slots []int) (*Slab, error) {
	s := &Slab{dev: dev, slots: slots, known: make([]bool, len(slots))}
	words := (s.tallies() + len(slots)) * kernels.TallyWords
	var err error
	if s.buffer, err = dev.AllocIn(memory.Metadata, kernels.Int32, max(words, 1)); err != nil {
		return nil, fmt.Errorf("fp8: the slab of %d tensors: %w", len(slots), err)
	}
	s.words = make([]int32, s.buffer.N)
	if err := s.Load(state); err != nil {
		_ = s.Close() // The first error is the one to tell.
		return nil, err
	}
	return s, nil
}

// tallies returns the place of the first tally, in tallies.
func (s *Slab) tallies() int { return (len(s.slots) + kernels.TallyWords - 1) / kernels.TallyWords }

// Scale returns the cell of the scale of a line, or none where the slot has no history
// and is scaled by its own greatest magnitude ([State.Known]).
func (s *Slab) Scale(line int) kernels.Cell {
	if !s.known[line] {
		return kernels.Cell{}
	}
	b := s.buffer
	b.Type = kernels.Float32
	return kernels.Cell{Buffer: b, Index: line}
}

// Tally returns the cell of the tally of a line.
func (s *Slab) Tally(line int) kernels.Cell {
	return kernels.Cell{Buffer: s.buffer, Index: s.tallies() + line}
}

// Load writes the scales of the state, and sets all tallies to zero.
func (s *Slab) Load(state *State) error {
	clear(s.words)
	for line, slot := range s.slots {
		s.words[line] = int32(math.Float32bits(state.scales[slot]))
		s.known[line] = state.Known(slot)
	}
	if err := s.dev.WriteInt32(s.buffer, s.words); err != nil {
		return fmt.Errorf("fp8: the slab of %d tensors: %w", len(s.slots), err)
	}
	return nil
}

// Forget sets the tallies of some lines to zero: what they have measured was of a step
// that came to nothing. It waits for the device.
func (s *Slab) Forget(first, count int) error {
	if err := s.dev.ReadInt32(s.words, s.buffer); err != nil {
		return fmt.Errorf("fp8: the slab of %d tensors: %w", len(s.slots), err)
	}
	clear(s.words[(s.tallies()+first)*kernels.TallyWords:][:count*kernels.TallyWords])
	if err := s.dev.WriteInt32(s.buffer, s.words); err != nil {
		return fmt.Errorf("fp8: the slab of %d tensors: %w", len(s.slots), err)
	}
	return nil
}

// Collect merges the tallies into those of the slots. It waits for the device.
func (s *Slab) Collect(tallies []Tally) error {
	if err := s.dev.ReadInt32(s.words, s.buffer); err != nil {
		return fmt.Errorf("fp8: the slab of %d tensors: %w", len(s.slots), err)
	}
	for line, slot := range s.slots {
		tallies[slot].Merge(tallyOf(s.words[(s.tallies()+line)*kernels.TallyWords:]))
	}
	return nil
}

// Close releases the buffer.
func (s *Slab) Close() error {
	_, err := s.dev.Release(s.buffer)
	return err
}
