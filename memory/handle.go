package memory

import "strconv"

// Handle names a buffer of an [Arena]: a slot, the generation of its tenant, and a number
// of the arena. The zero Handle is none. Handles are values and comparable. A handle
// means something to the Arena that made it; every other one refuses it (ErrOtherArena).
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
