package vector

// Normalise sets y to (x - mean)·rstd·gamma + beta, with an error of at most four roundings.
func (s Set) Normalise(y, x, gamma, beta []float32, mean, rstd float32) {
	x, gamma, beta = x[:len(y)], gamma[:len(y)], beta[:len(y)]
	if s != Portable {
		normalise(s, first(y), first(x), first(gamma), first(beta), len(y), mean, rstd)
		return
	}
	for i, v := range x {
		y[i] = float32((v-mean)*rstd*gamma[i]) + beta[i]
	}
}

// NormSums returns Σ g and Σ g·(x - mean)·rstd with g = dy·gamma. The terms are computed in
// float32, and the sums in float64.
func (s Set) NormSums(dy, x, gamma []float32, mean, rstd float32) (g, gn float64) {
	x, gamma = x[:len(dy)], gamma[:len(dy)]
	if s != Portable {
		return normSums(s, first(dy), first(x), first(gamma), len(dy), mean, rstd)
	}
	var parts, normal eighths
	for i, d := range dy {
		g := d * gamma[i]
		parts[i&7] += float64(g)
		normal[i&7] += float64(g * ((x[i] - mean) * rstd))
	}
	return parts.sum(), normal.sum()
}

// NormGrad sets dx to rstd·(dy·gamma - meanG - (x - mean)·rstd·meanGN).
func (s Set) NormGrad(dx, dy, x, gamma []float32, mean, rstd, meanG, meanGN float32) {
	dy, x, gamma = dy[:len(dx)], x[:len(dx)], gamma[:len(dx)]
	if s != Portable {
		normGrad(s, first(dx), first(dy), first(x), first(gamma), len(dx), mean, rstd, meanG, meanGN)
		return
	}
	for i := range dx {
		dx[i] = rstd * (float32(dy[i]*gamma[i]) - meanG - float32((x[i]-mean)*rstd*meanGN))
	}
}

// NormGain adds dy·(x - mean)·rstd to dgamma.
func (s Set) NormGain(dgamma, dy, x []float32, mean, rstd float32) {
	dy, x = dy[:len(dgamma)], x[:len(dgamma)]
	if s != Portable {
		normGain(s, first(dgamma), first(dy), first(x), len(dgamma), mean, rstd)
		return
	}
	for i, d := range dy {
		dgamma[i] += float32(d * ((x[i] - mean) * rstd))
	}
}
