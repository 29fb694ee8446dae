//go:build race

package layout_test

// raced says that the race detector is on, which makes a search ten times as slow.
const raced = true
