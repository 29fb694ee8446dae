package schedule

import "slices"

// writer writes programs as numbered steps. A step is a few actions, such as the
// forward of one microbatch and the backward of another one.
type writer struct {
	program []Segment
	body    []Action // written and in no segment yet
}

// A step adds the actions of step i to a body.
type step func(body []Action, i int) []Action

// steps writes the steps from, from+1, ... up to and without to.
func (w *writer) steps(from, to int, step step) {
	for i := from; i < to; i++ {
		w.body = step(w.body, i)
	}
}

// loop writes the steps from, from+1, ... up to and without to, where each is the one
// a period before with stride added to its microbatches: whole periods become one
// segment.
func (w *writer) loop(from, to, period, stride int, step step) {
	if repeat := (to - from) / period; repeat > 1 {
		w.segment(1, 0)
		w.steps(from, from+period, step)
		w.segment(repeat, stride)
		from += repeat * period
	}
	w.steps(from, to, step)
}

// segment makes a segment of what is written.
func (w *writer) segment(repeat, stride int) {
	if len(w.body) > 0 {
		w.program = append(w.program, Segment{Body: slices.Clone(w.body), Repeat: repeat, Stride: stride})
		w.body = w.body[:0]
	}
}

// end returns the program that is written. The next one may be begun.
func (w *writer) end() []Segment {
	w.segment(1, 0)
	program := slices.Clone(w.program)
	w.program = w.program[:0]
	return program
}
