package memory

import "strconv"

// Handle identifies a buffer of an [Arena]: a slot, the slot's generation, and the arena's number. The
// zero Handle refers to no buffer. Handles are values and comparable. Only the Arena that created a
// handle accepts it; any other one returns ErrOtherArena.
type Handle struct {
	slot, generation, arena uint32
}

// String returns the slot and the generation, such as "3.1", or "none" for the zero Handle.
func (h Handle) String() string {
	if h.generation == 0 {
		return "none"
	}
	return strconv.FormatUint(uint64(h.slot), 10) + "." + strconv.FormatUint(uint64(h.generation), 10)
}
