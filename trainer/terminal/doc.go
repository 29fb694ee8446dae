// Package terminal writes for people at a terminal: names from users and files, in which it shows escape
// sequences and characters that change the direction of text in quoted form, and the progress of a long
// run.
package terminal
