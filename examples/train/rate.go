package main

import "math"

// rateAt returns the learning rate of a step, counted from 0: a rise over the
// warmup steps to the peak, then half a cosine down to a twentieth of it at the
// last step.
func rateAt(peak float32, step, warmup, steps int) float32 {
	if step < warmup {
		return peak * float32(step+1) / float32(warmup)
	}
	const last = 0.05
	progress := float64(step-warmup) / math.Max(float64(steps-1-warmup), 1)
	return peak * float32(last+(1-last)*(1+math.Cos(math.Pi*math.Min(progress, 1)))/2)
}
