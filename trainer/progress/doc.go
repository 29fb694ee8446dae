// Package progress says how far a program is: one line that is rewritten in place on a
// terminal, and a few plain lines elsewhere, so that a log of the output stays short.
package progress
