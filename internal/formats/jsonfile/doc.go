// Package jsonfile reads and writes files of JSON. Errors about a file that its reader does not understand
// state the position, the text found and the text expected; none of these words comes from the JSON
// library, whose messages differ between versions.
package jsonfile
