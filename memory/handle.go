package memory

import "strconv"

// Handle identifies a buffer of an [Arena]: a slot, a generation of the slot, and a number of
// the arena. The zero Handle refers to no buffer. Handles are values and comparable. Only the
// Arena that created a handle accepts it; every other one returns ErrOtherArena.
type Handle struct {
	slot, generation, arena uint32
}

// String returns slot and generation, such as "3.1", or "none".
func (h Handle) String() string {
	if h.generation == 0 {
		return "none"
	}
	return strconv.FormatUint(uint64(h.slot), 10) + "." + strconv.FormatUint(uint64(h.generation), 10)
}
