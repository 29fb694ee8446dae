//go:build race

package main

// raced says that the race detector is on, which makes pools forget at random.
const raced = true
