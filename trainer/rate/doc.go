// Package rate is for the learning rate of a trainer's own optimizer: it has the schedules
// that papers name.
//
// A [Schedule] is a pure function of the step, so that a run that resumes has the rate that
// it would have had.
package rate
