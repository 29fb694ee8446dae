// Package local joins the ranks of one process. A runner with several ranks creates its own [Links];
// tests and benchmarks can create them, too.
//
// A step is done on every rank or on none. One lock guards all state. The last rank that calls the
// first Exchange of a step gives every rank the result at the same time, unless the step has been
// aborted. A rank whose context ends before that removes its bytes, so that the exchange cannot
// complete. A rank that has the result returns it even if another rank has aborted the step since. In
// a step that is done, Exchange ignores its context.
package local
