// Package progress shows the progress of a long-running program: it rewrites one line in place
// on a terminal, and writes a few plain lines elsewhere, so that a log of the output stays short.
package progress
