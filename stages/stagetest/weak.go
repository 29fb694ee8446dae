package stagetest

import "weak"

// Weak is the Subject.Weak of a space whose handles are pointers to garbage-collected memory. The
// memory of h should be larger than 16 bytes or contain a pointer: Go combines smaller values
// into one allocation, and frees them together.
func Weak[U any](h *U) (reachable func() bool) {
	p := weak.Make(h)
	return func() bool { return p.Value() != nil }
}
