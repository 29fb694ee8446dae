// Package outfile writes what a command puts out under a name that its user gave: a file
// is replaced whole or not at all, a link is followed, and what is no file is written to
// as it is.
package outfile
