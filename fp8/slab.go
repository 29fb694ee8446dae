package fp8

import (
	"fmt"
	"math"

	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
)

// Slab is a device's part of a state: one buffer of scope [memory.Metadata] that holds the scales
// of the running step, followed by the tallies, for each slot that the device uses.
type Slab struct {
	dev    kernels.Device
	slots  []int  // by line: the number of the slot in the state
	known  []bool // by line: whether the slot has a history that determines its scale
	buffer kernels.Buffer
	words  []int32
}

// NewSlab allocates a slab with one line for each of the given slots, and loads the state's
// scales into it. The slab keeps slots. The caller must close the slab, which belongs to the
// device's goroutine.
func NewSlab(dev kernels.Device, state *State, slots []int) (*Slab, error) {
	s := &Slab{dev: dev, slots: slots, known: make([]bool, len(slots))}
	words := (s.tallies() + len(slots)) * kernels.TallyWords
	var err error
	if s.buffer, err = dev.AllocIn(memory.Metadata, kernels.Int32, max(words, 1)); err != nil {
		return nil, s.failed(err)
	}
	s.words = make([]int32, s.buffer.N)
	if err := s.Load(state); err != nil {
		_ = s.Close() // the first error is reported
		return nil, err
	}
	return s, nil
}

// tallies returns the offset of the first tally, in units of tallies.
func (s *Slab) tallies() int { return (len(s.slots) + kernels.TallyWords - 1) / kernels.TallyWords }

// Scale returns the cell that holds a line's scale, or the zero Cell if the slot has no history,
// so that its tensors are scaled by their own greatest magnitude ([State.Known]).
func (s *Slab) Scale(line int) kernels.Cell {
	if !s.known[line] {
		return kernels.Cell{}
	}
	b := s.buffer
	b.Type = kernels.Float32
	return kernels.Cell{Buffer: b, Index: line}
}

// Tally returns the cell that holds a line's tally.
func (s *Slab) Tally(line int) kernels.Cell {
	return kernels.Cell{Buffer: s.buffer, Index: s.tallies() + line}
}

// Load writes the state's scales and sets all tallies to zero.
func (s *Slab) Load(state *State) error {
	clear(s.words)
	for line, slot := range s.slots {
		s.words[line] = int32(math.Float32bits(state.scales[slot]))
		s.known[line] = state.Known(slot)
	}
	return s.write()
}

// read and write copy all words from and to the device.
func (s *Slab) read() error { return s.failed(s.dev.ReadInt32(s.words, s.buffer)) }

func (s *Slab) write() error { return s.failed(s.dev.WriteInt32(s.buffer, s.words)) }

func (s *Slab) failed(err error) error {
	if err != nil {
		err = fmt.Errorf("fp8: the slab of %d tensors: %w", len(s.slots), err)
	}
	return err
}

// Forget sets the tallies of count lines from line first to zero, because the step that measured
// them was abandoned. It waits for the device.
func (s *Slab) Forget(first, count int) error {
	if err := s.read(); err != nil {
		return err
	}
	clear(s.words[(s.tallies()+first)*kernels.TallyWords:][:count*kernels.TallyWords])
	return s.write()
}

// Collect merges the tally of each line into the entry of tallies for its slot. It waits for the
// device.
func (s *Slab) Collect(tallies []Tally) error {
	if err := s.read(); err != nil {
		return err
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
