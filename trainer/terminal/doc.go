// Package terminal writes for people at a terminal: names from users and files, in which it shows escape
// sequences and characters that change the direction of text in quoted form, and the progress of a long
// run.
//
// [Quote] is for one name, [Writer] for all that a program prints, [Progress] for the line of a long run.
package terminal
