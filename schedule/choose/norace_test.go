//go:build !race

package choose_test

// raced says that the race detector is on, with which searches take ten times as long.
const raced = false
