package fp8

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math"

	"github.com/weir-ml/weir/internal/formats/diagnostic"
)

// A checkpoint is little-endian and consists of magic, the version, the recipe as text preceded
// by its length, a hash of the slots, and the scales and histories.
const (
	magic   = "weirfp8"
	version = 1
)

// MarshalBinary returns the scales and histories, preceded by the recipe and a hash of the
// slots. Equal states give equal bytes.
func (s *State) MarshalBinary() ([]byte, error) {
	out, _ := binary.Append(s.head(), binary.LittleEndian, s.scales) // encoding numbers never fails
	return binary.Append(out, binary.LittleEndian, s.history)
}

// head returns the head of a checkpoint: everything before the scales.
func (s *State) head() []byte {
	recipe := s.recipe.text()
	out := append([]byte(magic), version)
	out = binary.LittleEndian.AppendUint32(out, uint32(len(recipe)))
	out = append(out, recipe...)
	slots := fnv.New64a()
	for _, slot := range s.slots {
		fmt.Fprintf(slots, " %q %d", slot.Name, slot.Role)
	}
	return binary.LittleEndian.AppendUint64(out, slots.Sum64())
}

// UnmarshalBinary sets the scales and histories to those in data, which MarshalBinary must have
// returned for a state with the same recipe and slots. Otherwise the error wraps ErrState and the
// state is unchanged.
func (s *State) UnmarshalBinary(data []byte) error {
	head := s.head()
	if err := s.checkHead(data, head); err != nil {
		return err
	}
	if want := len(head) + 4*(len(s.scales)+len(s.history)); len(data) != want {
		return fmt.Errorf("%w: a checkpoint of %d bytes, expected %d", ErrState, len(data), want)
	}
	values := make([]float32, len(s.scales)+len(s.history))
	_, _ = binary.Decode(data[len(head):], binary.LittleEndian, values) // the size has been checked
	for i, x := range values {
		if i < len(s.scales) && !(x > 0 && x <= math.MaxFloat32) || !(x >= 0 && x <= math.MaxFloat32) {
			what, slot := "a scale", i
			if i >= len(s.scales) {
				what, slot = "an amax", (i-len(s.scales))/s.length
			}
			return fmt.Errorf("%w: the checkpoint has %s of %v for %q", ErrState, what, x, s.slots[slot].Name)
		}
	}
	copy(s.history, values[copy(s.scales, values):])
	return nil
}

// checkHead returns an error unless data begins with the head of a checkpoint of this state.
func (s *State) checkHead(data, head []byte) error {
	const fixed = len(magic) + 1 + 4
	if len(data) < fixed || string(data[:len(magic)]) != magic {
		return fmt.Errorf("%w: these %d bytes are not a checkpoint of a state", ErrState, len(data))
	}
	if v := data[len(magic)]; v != version {
		return fmt.Errorf("%w: a checkpoint of version %d, expected %d: %s", ErrState, v, version, diagnostic.OtherVersion)
	}
	length := binary.LittleEndian.Uint32(data[fixed-4:])
	if rest := data[fixed:]; uint64(length)+8 > uint64(len(rest)) {
		return fmt.Errorf("%w: a checkpoint of %d bytes ends within its header", ErrState, len(data))
	} else if recipe := string(rest[:length]); recipe != s.recipe.text() {
		return fmt.Errorf("%w: the checkpoint was made with the recipe %.200q, not %q", ErrState, recipe, s.recipe.text())
	}
	if string(data[:len(head)]) != string(head) {
		first := ""
		if len(s.slots) > 0 {
			first = s.slots[0].Name
		}
		return fmt.Errorf("%w: the checkpoint contains other tensors than these %d, of which the first is %q", ErrState, len(s.slots), first)
	}
	return nil
}

// String returns the formats of the forward pass and of gradients, such as "e4m3/e5m2".
func (p Pair) String() string { return fmt.Sprintf("%v/%v", p.Forward, p.Backward) }

func (r DelayedScaling) text() string {
	return fmt.Sprintf("%v %v margin=%d history=%d recent=%t", r, r.Format, r.Margin, r.steps(), r.MostRecent)
}

func (r CurrentScaling) text() string {
	return fmt.Sprintf("%v %v epsilon=%g power2=%t", r, r.Format, r.Epsilon, r.PowerOf2)
}

func (r BlockScaling) text() string {
	return fmt.Sprintf("%v %v epsilon=%g any=%t", r, r.Format, r.Epsilon, r.AnyScale)
}

func (r MXFP8) text() string { return fmt.Sprintf("%v %v down=%t", r, r.Format, r.Down) }

func (r NVFP4) text() string { return fmt.Sprintf("%v nearest=%t", r, r.Nearest) }
