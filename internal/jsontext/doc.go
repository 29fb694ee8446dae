// Package jsontext reads untrusted JSON value by value with the decoder of the same name, which the
// standard library has since Go 1.27. Every fault has a location in the text, and names the value
// found and the value expected; no word of it is the decoder's, so that it does not depend on the
// version of Go. The package reads plans, costs, profiles and memory logs.
//
// A [Reader] keeps its first fault and returns no more tokens after it, so callers check for the
// fault once, at the end.
package jsontext
