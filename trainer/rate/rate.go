package rate

import "math"

// Schedule returns the rate of a step, counted from 0. Steps behind its last have the rate
// of the last.
type Schedule func(step int) float32

// Constant is one rate for all steps.
func Constant(rate float32) Schedule {
	return func(int) float32 { return rate }
}

// Warmup rises in equal parts to the first rate of another schedule, which it reaches after
// so many steps; the other one begins there.
func Warmup(steps int, then Schedule) Schedule {
	return func(step int) float32 {
		if step < steps {
			return then(0) * float32(step+1) / float32(steps)
		}
		return then(step - steps)
	}
}

// Cosine goes from peak down by half a cosine over so many steps, to a part of it at the
// last, from 0 to 1 (Loshchilov and Hutter 2016).
func Cosine(peak float32, steps int, least float64) Schedule {
	return decay(peak, steps, least, func(progress float64) float64 { return (1 + math.Cos(math.Pi*progress)) / 2 })
}

// Linear goes from peak straight down over so many steps, to a part of it at the last.
func Linear(peak float32, steps int, least float64) Schedule {
	return decay(peak, steps, least, func(progress float64) float64 { return 1 - progress })
}

// Stable stays at peak, and goes straight down over the last steps of it: warmup, stable,
// decay, if [Warmup] is before it (Hu et al. 2024).
func Stable(peak float32, steps, last int, least float64) Schedule {
	down := Linear(peak, last+1, least)
	return func(step int) float32 { return down(max(step-(steps-1-last), 0)) }
}

// InverseSqrt goes down with the square root of the steps, from peak at step 0: half of it
// after 3*scale steps (Vaswani et al. 2017, where the scale is that of the warmup).
func InverseSqrt(peak float32, scale int) Schedule {
	return func(step int) float32 { return peak / float32(math.Sqrt(1+float64(step)/float64(max(scale, 1)))) }
}

// decay goes from peak down to a part of it at the last step. Fall goes from 1 to 0 as
// progress goes from 0 to 1.
func decay(peak float32, steps int, least float64, fall func(progress float64) float64) Schedule {
	return func(step int) float32 {
		progress := math.Min(float64(step)/math.Max(float64(steps-1), 1), 1)
		return peak * float32(least+float64((1-least)*fall(progress)))
	}
}
