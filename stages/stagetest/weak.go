package stagetest

import "weak"

// Weak is the Subject.Weak of a space whose handles are pointers to memory that
// the garbage collector owns. What h points to should be larger than 16 bytes or
// contain a pointer: Go puts smaller things together, and they live together.
func Weak[U any](h *U) (reachable func() bool) {
	p := weak.Make(h)
	return func() bool { return p.Value() != nil }
}
