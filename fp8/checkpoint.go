package fp8

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math"
)

// version is the number of the form that MarshalBinary writes.
const version = 1

// MarshalBinary returns scales and histories, and what identifies recipe and slots. The
// same state gives the same bytes.
func (s *State) MarshalBinary() ([]byte, error) {
	out := append([]byte("weirfp8"), version)
	out = binary.LittleEndian.AppendUint64(out, s.identity())
	for _, list := range [][]float32{s.scales, s.history} {
		for _, x := range list {
			out = binary.LittleEndian.AppendUint32(out, math.Float32bits(x))
		}
	}
	return out, nil
}

// UnmarshalBinary sets scales and histories to those that MarshalBinary has returned for
// a state of the same recipe and slots. After an error nothing has changed.
func (s *State) UnmarshalBinary(data []byte) error {
	const head = 16
	switch want := head + 4*(len(s.scales)+len(s.history)); {
	case len(data) < head || string(data[:7]) != "weirfp8":
		return fmt.Errorf("%w: these %d bytes are no checkpoint of one", ErrState, len(data))
	case data[7] != version:
		return fmt.Errorf("%w: a checkpoint of version %d, expected %d", ErrState, data[7], version)
	case binary.LittleEndian.Uint64(data[8:]) != s.identity():
		return fmt.Errorf("%w: the checkpoint is of another recipe or other slots than %v with %d slots", ErrState, s.recipe, len(s.slots))
	case len(data) != want:
		return fmt.Errorf("%w: a checkpoint of %d bytes, expected %d", ErrState, len(data), want)
	}
	data = data[head:]
	for _, list := range [][]float32{s.scales, s.history} {
		for i := range list {
			list[i] = math.Float32frombits(binary.LittleEndian.Uint32(data))
			data = data[4:]
		}
	}
	return nil
}

// identity is a number of recipe and slots.
func (s *State) identity() uint64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%d %d %d %d %t", s.recipe.Format.Forward, s.recipe.Format.Backward, s.recipe.Margin, s.length, s.recipe.MostRecent)
	for _, slot := range s.slots {
		fmt.Fprintf(h, " %q %d", slot.Name, slot.Role)
	}
	return h.Sum64()
}
