//go:build race

package testkit

// Raced reports whether the race detector is on. It makes plain Go ten times as slow, and lets
// pools drop objects at random.
const Raced = true
