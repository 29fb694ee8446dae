// Package rate provides the learning rate schedules that papers use, for a trainer's own optimizer.
//
// A [Schedule] is a pure function of the step, so that a resumed run has the same rates as an
// uninterrupted one.
package rate
