//go:build race

package plantest

// Raced says that the race detector is on, which makes pools forget at random.
const Raced = true
