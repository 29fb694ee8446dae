package vector

// eighths holds the eight partial sums of a reduction.
type eighths [8]float64

// sum adds the partial sums pairwise by halves.
func (p *eighths) sum() float64 {
	a, b, c, d := p[0]+p[4], p[1]+p[5], p[2]+p[6], p[3]+p[7]
	return (a + c) + (b + d)
}

// Total returns Σ x in float64.
func (s Set) Total(x []float32) float64 {
	if s != Portable {
		return total(s, first(x), len(x))
	}
	var part eighths
	for i, v := range x {
		part[i&7] += float64(v)
	}
	return part.sum()
}

// Squares returns Σ (x - mean)² in float64, where differences, squares and sums are rounded
// separately. With a mean of 0 the squares are exact.
func (s Set) Squares(x []float32, mean float32) float64 {
	if s != Portable {
		return squares(s, first(x), len(x), mean)
	}
	var part eighths
	for i, v := range x {
		d := float64(v) - float64(mean)
		part[i&7] += float64(d * d)
	}
	return part.sum()
}

// Dot returns Σ x·y in float64. The products are exact.
func (s Set) Dot(x, y []float32) float64 {
	y = y[:len(x)]
	if s != Portable {
		return dot(s, first(x), first(y), len(x))
	}
	var part eighths
	for i, v := range x {
		part[i&7] += float64(float64(v) * float64(y[i]))
	}
	return part.sum()
}
