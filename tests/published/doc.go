// Package published compares the simulator and the generators with published results: closed
// forms for bubbles and peaks, and the table of the zero-bubble paper. It writes
// docs/schedules.md from the table of closed forms:
//
//	go test ./tests/published -update
package published
