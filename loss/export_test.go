package loss

// Repeat changes a as if all its additions had been made n times, without propagating carries.
func Repeat(a *Exact, n int64) {
	for i := range a.w {
		a.w[i] *= n
	}
}

// Pending returns the number of additions since a's carries were propagated.
func Pending(a *Exact) int { return int(a.w[pending]) }
