package schedule

// A rule writes a program as numbered steps, each a few actions, such as the forward of
// one microbatch and the backward of another one.

// steps writes the steps from, from+1, ... up to and without to.
func (b *Builder) steps(from, to int, step func(i int)) {
	for i := from; i < to; i++ {
		step(i)
	}
}

// loop writes the steps from, from+1, ... up to and without to, where each is the one
// a period before with stride added to its microbatches.
func (b *Builder) loop(from, to, period, stride int, step func(i int)) {
	if repeat := (to - from) / period; repeat > 1 {
		since := b.Len()
		b.steps(from, from+period, step)
		b.Repeat(since, repeat-1, stride)
		from += repeat * period
	}
	b.steps(from, to, step)
}

// forward writes the forward of a microbatch through stages of a rank.
func (b *Builder) forward(stages []int, mb int) {
	for _, stage := range stages {
		b.Append(Act(F, stage, mb))
	}
}

// backward writes the backward of a microbatch through stages of a rank.
func (b *Builder) backward(stages []int, mb int) {
	for i := len(stages) - 1; i >= 0; i-- {
		b.Append(Act(B, stages[i], mb))
	}
}
