// Package jsontext is for reading JSON from outside: it goes over text that encoding/json has
// found valid, value by value, so that every fault has a place in the text and names what was
// found there and what was expected. Plans, costs and profiles are read with it.
//
// A [Reader] keeps its first fault. After it there are no more tokens: whoever reads
// goes on without looking, and asks for the fault at the end.
package jsontext
