// Package testkit is for tests alone: it has the flags -update and -long, the mark of a slow
// test, whether the race detector is on, and a count of allocations that does not depend on
// how busy the machine is.
// Only tests import it, since it registers flags.
package testkit
