// Package outfile is for writing a file under a name that a user gave. [Write] replaces a file
// whole or not at all, follows a link, and writes to what is no file as it is. A [Stream] is a
// log, which has another name until it is whole.
package outfile
