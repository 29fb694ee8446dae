package metrics

import "math"

// Ratio returns the sum of sums divided by the sum of weights, and its standard error, estimated
// from the deviations of the groups. The error of a single group is not finite.
func Ratio(sums, weights []float64) (mean, standard float64) {
	var sum, weight float64
	for i := range sums {
		sum += sums[i]
		weight += weights[i]
	}
	mean = sum / weight
	var squares float64
	for i := range sums {
		d := sums[i] - mean*weights[i]
		squares += d * d
	}
	n := float64(len(sums))
	return mean, math.Sqrt(n/(n-1)*squares) / weight
}
