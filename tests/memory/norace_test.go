//go:build !race

package memory_test

// raced says that the race detector is on, which makes pools forget at random.
const raced = false
