//go:build race

package kerneltest_test

// raced says that the race detector is on, which makes plain Go ten times as slow.
const raced = true
