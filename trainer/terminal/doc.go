// Package terminal writes for people at a terminal. It quotes escape sequences and characters that change the
// direction of text, and shows the progress of a long run.
//
// [Quote] quotes one name, [Writer] quotes all that a program prints, and [Progress] is the progress line of a
// long run.
package terminal
