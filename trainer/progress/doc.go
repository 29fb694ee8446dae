// Package progress is for a program that runs long: it rewrites one line in place on a
// terminal, and writes a few plain lines elsewhere, so that a log of the output stays short.
package progress
