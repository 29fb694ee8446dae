package schedule

import "slices"

// foldedLeast is how many actions a repetition must save to become a segment.
const foldedLeast = 4

// Fold returns the program of a list of actions: what repeats with a fixed stride
// of microbatches becomes a segment, what lies between is written out. A list with
// a steady state becomes prologue, period and epilogue. The program is the same list
// when it is expanded, no body ends with a joined action, and nothing of the argument
// is kept.
//
// It takes n log n time: the repetition across the middle that saves most is taken
// out, and both sides are folded in the same way.
func Fold(actions []Action) []Segment {
	f := folder{actions: actions, steps: make([]Action, len(actions))}
	for i, a := range actions {
		f.steps[i] = a
		if i > 0 {
			f.steps[i] = a.Shift(-actions[i-1].Microbatch())
		}
	}
	f.fold(0, len(actions))

	program := make([]Segment, 0, len(f.parts))
	for _, r := range f.parts {
		s := Segment{Body: slices.Clone(actions[r.from : r.from+r.period]), Repeat: r.repeat}
		if r.repeat > 1 {
			s.Stride = actions[r.from+r.period].Microbatch() - actions[r.from].Microbatch()
		}
		program = append(program, s)
	}
	return program
}

// folder folds a list. Steps holds its actions, each with its microbatch counted
// from that of the action before: a repetition with a stride is a plain one there.
type folder struct {
	actions, steps []Action
	parts          []repetition
}

// repetition is a part of the list: repeat times a period of so many actions.
type repetition struct{ from, period, repeat int }

func (r repetition) end() int   { return r.from + r.period*r.repeat }
func (r repetition) saved() int { return r.period * (r.repeat - 1) }

// beats reports whether r is worth more than a repetition whose period is not longer.
// A longer period must save twice as much: what repeats within it is written out in
// its body, and two runs of 500 steps are better two segments than one of 500 actions.
func (r repetition) beats(shorter repetition) bool {
	if r.period == shorter.period {
		return r.saved() > shorter.saved()
	}
	return r.saved() > 2*shorter.saved()
}

// fold adds the parts of the actions from lo to hi.
func (f *folder) fold(lo, hi int) {
	if hi-lo <= foldedLeast {
		f.write(lo, hi)
		return
	}
	best := f.across(lo, hi)
	if best.saved() < foldedLeast {
		mid := (lo + hi) / 2
		f.fold(lo, mid)
		f.fold(mid, hi)
		return
	}
	f.fold(lo, best.from)
	f.parts = append(f.parts, best)
	f.fold(best.end(), hi)
}

// write adds actions as they are, to the part before where that is so too.
func (f *folder) write(lo, hi int) {
	if lo == hi {
		return
	}
	if n := len(f.parts); n > 0 && f.parts[n-1].repeat == 1 {
		f.parts[n-1].period += hi - lo
		return
	}
	f.parts = append(f.parts, repetition{lo, hi - lo, 1})
}

// across returns the repetition across the middle of lo to hi that saves most. One
// with a period p covers the p actions before or behind the middle, so it is known
// from how far the list agrees with itself, from the middle on and back from it,
// when it is moved by p (the step of Main and Lorentz).
func (f *folder) across(lo, hi int) (best repetition) {
	steps := f.steps[lo:hi]
	mid := len(steps) / 2
	on := agreement(steps[mid:], steps)
	reversed := slices.Clone(steps)
	slices.Reverse(reversed)
	back := agreement(reversed[len(steps)-mid:], reversed)

	try := func(first, period, on, back int) { // steps first-back to first+on are those a period later
		from, end := lo+first-back, lo+first+on+period
		if from > lo && f.same(from-1, from-1+period) {
			from-- // its step is another one, the action is not
		}
		for from+period <= end && (from > 0 && f.actions[from-1].Joined() || f.actions[from+period-1].Joined()) {
			from++ // a joined pair stays in one body
		}
		if r := (repetition{from, period, (end - from) / period}); r.beats(best) {
			best = r
		}
	}
	for p := 1; p <= len(steps)/2; p++ {
		if mid+p < len(steps) {
			try(mid, p, on[mid+p], back[len(steps)-mid-p])
		}
		if p <= mid {
			before := 0
			if p < mid {
				before = back[len(steps)-mid+p]
			}
			try(mid-p, p, on[mid-p], before)
		}
	}
	return best
}

// same reports whether two actions differ in nothing but their microbatches.
func (f *folder) same(i, k int) bool {
	return f.actions[i].Shift(-f.actions[i].Microbatch()) == f.actions[k].Shift(-f.actions[k].Microbatch())
}

// agreement returns for each place of the text how many actions from there on are
// those at the beginning of the pattern.
func agreement(pattern, text []Action) []int {
	all := append(slices.Clone(pattern), text...)
	z := make([]int, len(all))
	for i, lo, hi := 1, 0, 0; i < len(all); i++ { // the Z function
		if i < hi {
			z[i] = min(hi-i, z[i-lo])
		}
		for i+z[i] < len(all) && all[z[i]] == all[i+z[i]] {
			z[i]++
		}
		if i+z[i] > hi {
			lo, hi = i, i+z[i]
		}
	}
	z = z[len(pattern):]
	for i := range z {
		z[i] = min(z[i], len(pattern))
	}
	return z
}
