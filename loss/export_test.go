package loss

// AlmostFull makes a's next addition the one that settles its carries.
func AlmostFull(a *Exact) { a.w[pending] = settleAt - 1 }

// Pending returns the additions since a's carries were settled.
func Pending(a *Exact) int { return int(a.w[pending]) }
