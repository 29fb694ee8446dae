package memory

import "strconv"

// Handle names a buffer of an [Arena]: a slot and the generation of its tenant.
// The zero Handle is none. Handles are values and comparable. A handle means
// something to the Arena that made it and to no other.
type Handle struct {
	slot, generation uint32
}

// String returns slot and generation, such as "3.1", or "none".
func (h Handle) String() string {
	if h.generation == 0 {
		return "none"
	}
	return strconv.FormatUint(uint64(h.slot), 10) + "." + strconv.FormatUint(uint64(h.generation), 10)
}
