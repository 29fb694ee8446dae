package rate

import "math"

// Cosine rises over the warmup steps to a peak, and then goes down by half a cosine to a
// part of it at the last step (Loshchilov and Hutter 2016).
type Cosine struct {
	Peak   float32
	Warmup int
	Steps  int     // in all
	Least  float64 // part of the peak that the last step has
}

// At returns the rate of a step, counted from 0.
func (c Cosine) At(step int) float32 {
	if step < c.Warmup {
		return c.Peak * float32(step+1) / float32(c.Warmup)
	}
	progress := float64(step-c.Warmup) / math.Max(float64(c.Steps-1-c.Warmup), 1)
	return c.Peak * float32(c.Least+(1-c.Least)*(1+math.Cos(math.Pi*math.Min(progress, 1)))/2)
}
