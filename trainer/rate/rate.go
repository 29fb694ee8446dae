package rate

import "math"

// Schedule returns the rate of a step, counted from 0. Steps after the last one of the schedule
// have the rate of the last one.
type Schedule func(step int) float32

// Constant is one rate for all steps.
func Constant(rate float32) Schedule {
	return func(int) float32 { return rate }
}

// Warmup rises linearly to the first rate of another schedule, which it reaches after the given
// number of steps; then the other schedule begins.
func Warmup(steps int, then Schedule) Schedule {
	return func(step int) float32 {
		if step < steps {
			return then(0) * float32(step+1) / float32(steps)
		}
		return then(step - steps)
	}
}

// Cosine decays from peak along half a cosine. At the last step the rate is peak times least,
// which is from 0 to 1 (Loshchilov and Hutter 2016).
func Cosine(peak float32, steps int, least float64) Schedule {
	return decay(peak, steps, least, func(progress float64) float64 { return (1 + math.Cos(math.Pi*progress)) / 2 })
}

// Linear decays linearly from peak. At the last step the rate is peak times least.
func Linear(peak float32, steps int, least float64) Schedule {
	return decay(peak, steps, least, func(progress float64) float64 { return 1 - progress })
}

// Stable stays at peak, and then decays linearly to peak times least during the last of the
// steps. After [Warmup] it is the schedule warmup, stable, decay (Hu et al. 2024).
func Stable(peak float32, steps, last int, least float64) Schedule {
	down := Linear(peak, last+1, least)
	return func(step int) float32 { return down(max(step-(steps-1-last), 0)) }
}

// InverseSqrt decays with the square root of the steps, from peak at step 0 to half of it after
// 3*scale steps (Vaswani et al. 2017, with the number of warm-up steps as the scale).
func InverseSqrt(peak float32, scale int) Schedule {
	return func(step int) float32 { return peak / float32(math.Sqrt(1+float64(step)/float64(max(scale, 1)))) }
}

// decay decreases from peak to peak times least at the last step. fall decreases from 1 to 0 as
// progress increases from 0 to 1.
func decay(peak float32, steps int, least float64, fall func(progress float64) float64) Schedule {
	return func(step int) float32 {
		progress := math.Min(float64(step)/math.Max(float64(steps-1), 1), 1)
		return peak * float32(least+float64((1-least)*fall(progress)))
	}
}
