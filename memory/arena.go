package memory

// Handle names a buffer of an [Arena]: a slot and the generation of its tenant.
// The zero Handle is none. Handles are values and comparable.
type Handle struct {
	slot, generation uint32
}
