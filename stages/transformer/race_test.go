//go:build race

package transformer_test

// raced says that the race detector is on.
const raced = true
