// Package repeats skips what a machine would only do again.
//
// A machine goes through actions and keeps sets of microbatches and other numbers on the
// way. A period of it, from one moment to a later one, is recorded: where the machine
// stands as it did before, only with later microbatches, it does the same again with
// microbatches that are later still, because nothing else decides what it does. So any
// number of periods can be skipped at once, and the machine is moved on by them. That
// ends where something that moves meets something that stands still: the end of a
// segment, or an edge of a set.
//
// What is skipped would have gone exactly like that; nothing is guessed.
package repeats
