// Package repeats skips the repeats of a machine.
//
// A machine runs actions and keeps a state: sets of microbatches and other numbers. A period is
// a stretch of its run. If the state after a period is the state before it with later
// microbatches, the machine does the same again with microbatches that are later still, because
// nothing else decides what it does. So any number of periods can be skipped at once, and the
// state moved by them. That ends when something that moves meets something that does not: the
// end of a segment, or an edge of a set.
//
// A skipped period would have run exactly like that; nothing is guessed.
package repeats
