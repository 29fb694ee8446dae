// Package testkit has helpers for tests: the flags -update and -long, the functions that mark slow and waiting
// tests, files, whether the race detector is on, and a count of allocations that does not depend on the load
// of the machine. Only tests may import it, because it registers flags.
package testkit
