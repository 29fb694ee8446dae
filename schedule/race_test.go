//go:build race

package schedule_test

// raced says that the race detector is on, which makes pools forget at random.
const raced = true
