package memreport

import (
	"math"
	"slices"
)

// slope is how much y rises for each x: the median of the slopes between all pairs of
// points, and Sen's interval around it at 99 %.
type slope struct {
	Median, Low, High float64
}

// leastPoints is how many points it takes to say that something grows: of fewer, all
// in ascending order, one in a hundred series of pure chance would be as steady.
const leastPoints = 5

// mostPoints is how many points a slope is taken over. The pairs are their square.
const mostPoints = 256

// fit returns the slope through points, of which x ascends strictly. It is 0 for
// fewer than two.
func fit(x, y []float64) slope {
	n := len(x)
	if n < 2 {
		return slope{}
	}
	all := make([]float64, 0, n*(n-1)/2)
	for i := range n {
		for j := i + 1; j < n; j++ {
			all = append(all, (y[j]-y[i])/(x[j]-x[i]))
		}
	}
	slices.Sort(all)
	// Kendall's S of n points without a trend has this deviation; 2.576 of them hold 99 %.
	half := 2.576 * math.Sqrt(float64(n*(n-1)*(2*n+5))/18) / 2
	middle := float64(len(all)-1) / 2
	at := func(i float64) float64 { return all[min(max(int(math.Round(i)), 0), len(all)-1)] }
	return slope{
		Median: (at(math.Floor(middle)) + at(math.Ceil(middle))) / 2,
		Low:    at(math.Floor(middle - half)), High: at(math.Ceil(middle + half)),
	}
}

// rises reports whether chance does not explain the rise of so many points.
func (s slope) rises(points int) bool { return points >= leastPoints && s.Low > 0 }

// hinge returns the index of the last point before y leaves its level to rise with
// the slope: of all lines that are flat up to a point and rise from there, the one
// that is nearest to the points, by the sum of absolute distances.
func hinge(x, y []float64, rise float64) int {
	best, least := 0, math.Inf(1)
	residuals := make([]float64, len(x))
	for i := range x {
		for j := range x {
			residuals[j] = y[j] - rise*max(0, x[j]-x[i])
		}
		slices.Sort(residuals)
		level, distance := residuals[len(residuals)/2], 0.0
		for _, r := range residuals {
			distance += math.Abs(r - level)
		}
		if distance < least {
			best, least = i, distance
		}
	}
	return best
}
