package loss

// Repeat makes a what it were if all that was added had been added n times, with no carry
// settled.
func Repeat(a *Exact, n int64) {
	for i := range a.w {
		a.w[i] *= n
	}
}

// Pending returns the additions since a's carries were settled.
func Pending(a *Exact) int { return int(a.w[pending]) }
