// Package jsontext reads untrusted JSON value by value, after encoding/json has validated it. Every
// fault has a location in the text, and names the value found and the value expected. The package
// reads plans, costs and profiles.
//
// A [Reader] keeps its first fault and returns no more tokens after it, so callers check for the
// fault once, at the end.
package jsontext
