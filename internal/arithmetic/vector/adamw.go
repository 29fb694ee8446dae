package vector

import "math"

// AdamW holds the constants of an update (Loshchilov and Hutter 2019): Rest is 1 - Beta, and
// Correct is 1/(1-β^t).
type AdamW struct {
	Factor             float32
	Beta1, Rest1       float32
	Beta2, Rest2       float32
	Correct1, Correct2 float32
	Epsilon            float32
	Rate, Decay        float32
}

// Update updates weight and the moments m and v. With g = Factor·grad:
//
//	m = β1·m + rest1·g    v = β2·v + rest2·g²
//	weight -= rate·(m·correct1 / (sqrt(v·correct2) + ε) + decay·weight)
//
// m, v and the change of weight have an error of a few roundings of their terms.
func (s Set) Update(weight, grad, m, v []float32, o *AdamW) {
	grad, m, v = grad[:len(weight)], m[:len(weight)], v[:len(weight)]
	if s != Portable {
		adamW(s, first(weight), first(grad), first(m), first(v), len(weight),
			o.Factor, o.Beta1, o.Rest1, o.Beta2, o.Rest2, o.Correct1, o.Correct2, o.Epsilon, o.Rate, o.Decay)
		return
	}
	for i, old := range weight {
		g := o.Factor * grad[i]
		a := float32(o.Beta1*m[i]) + float32(o.Rest1*g)
		b := float32(o.Beta2*v[i]) + float32(o.Rest2*g*g)
		m[i], v[i] = a, b
		// A float32 square root: it is correctly rounded in spite of the conversion.
		root := float32(math.Sqrt(float64(b * o.Correct2)))
		weight[i] = old - float32(o.Rate*(a*o.Correct1/(root+o.Epsilon)+float32(o.Decay*old)))
	}
}
