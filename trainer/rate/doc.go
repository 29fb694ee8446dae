// Package rate says what the learning rate of a step is: the schedules that papers name,
// for a trainer's own optimizer.
//
// A [Schedule] is a pure function of the step, so that a run that resumes has the rate that
// it would have had.
package rate
