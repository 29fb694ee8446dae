// Package layout plans the memory of a step before it runs.
//
// It takes a plan, and for every stage a [Template]: what the stage allocates, keeps
// and releases for one microbatch. It plays every rank's program with them, as the
// runner would run it, and so knows the birth and the death of every buffer. Package
// placement gives them offsets. The outcome for a rank is a [memory.Layout], which its
// arena obeys, and a certificate.
//
// Planning does not grow with microbatches: what repeats in a program is laid out
// once. Everything here is a pure function; package runner records templates and runs
// layouts.
package layout
