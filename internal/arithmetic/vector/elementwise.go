package vector

// Add adds src to dst. In this function and those below, the first slice determines the length.
// The others may be longer; their remaining elements are ignored.
func (s Set) Add(dst, src []float32) {
	src = src[:len(dst)]
	if s != Portable {
		add(s, first(dst), first(src), len(dst))
		return
	}
	for i, v := range src {
		dst[i] += v
	}
}

// Sum sets dst to x + y. dst may be x or y.
func (s Set) Sum(dst, x, y []float32) {
	x, y = x[:len(dst)], y[:len(dst)]
	if s != Portable {
		sum(s, first(dst), first(x), first(y), len(dst))
		return
	}
	for i := range dst {
		dst[i] = x[i] + y[i]
	}
}

// Scale sets dst to a·src. dst may be src.
func (s Set) Scale(dst, src []float32, a float32) {
	src = src[:len(dst)]
	if s != Portable {
		scale(s, first(dst), first(src), len(dst), a)
		return
	}
	for i, v := range src {
		dst[i] = a * v
	}
}

// Larger sets each element of top to the larger of itself and the corresponding element of x. If an element of
// x is NaN, Larger leaves the element of top unchanged.
func (s Set) Larger(top, x []float32) {
	x = x[:len(top)]
	if s != Portable {
		larger(s, first(top), first(x), len(top))
		return
	}
	for i, v := range x {
		if v > top[i] {
			top[i] = v
		}
	}
}
