// Package driver is for talking to a CUDA device through one small interface: [Driver] is what
// package cuda needs of the CUDA driver, 31 calls. Package libcuda (tag cuda) is the
// driver of the system; internal/fakecuda is one in Go, for tests on any machine.
//
// Ownership. Whoever reserves, maps, loads or creates something gives it back; Close gives back
// the context with all that is left in it. Memory is a range of addresses, reserved once, whose
// pages come (Map) and go (Unmap) at addresses that stay.
//
// Work is queued on a [Stream] and runs in the order of that stream. Between streams there is
// no order but by events: what was queued on a stream after Wait of an event runs after
// what was queued before Record of it. Nothing but [Driver.Sync], [Driver.Done] and Close waits.
// Any goroutine may call a driver, several at once too.
package driver
