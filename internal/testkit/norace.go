//go:build !race

package testkit

// Raced says that the race detector is on. It makes plain Go ten times as slow, and pools
// forget at random.
const Raced = false
