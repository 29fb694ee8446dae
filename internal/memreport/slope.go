package memreport

import (
	"math"
	"slices"
)

// slope is how much y rises for each x: the median of the slopes between all pairs of
// points, and Sen's interval around it at 99 %. Least is the lower end at 99.99 %.
type slope struct {
	Median, Low, High float64
	Least             float64
}

// leastPoints is how many points it takes to say that something grows: of fewer, all
// in ascending order, one in a thousand series of pure chance would be as steady.
const leastPoints = 7

// mostPoints is how many points a slope is taken over. The pairs are their square.
const mostPoints = 256

// Deviations of the normal distribution between which 99 % and 99.99 % lie.
const (
	likely  = 2.576
	certain = 3.891
)

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
	middle := float64(len(all)-1) / 2
	at := func(i float64) float64 { return all[min(max(int(math.Round(i)), 0), len(all)-1)] }
	s := slope{Median: (at(math.Floor(middle)) + at(math.Ceil(middle))) / 2}
	// Kendall's S of n points without a trend has this deviation, and a larger one where
	// each is like the one before.
	deviation := math.Sqrt(float64(n*(n-1)*(2*n+5))/18) * likeness(x, y, s.Median)
	s.Low, s.High = at(math.Floor(middle-likely*deviation/2)), at(math.Ceil(middle+likely*deviation/2))
	s.Least = at(math.Floor(middle - certain*deviation/2))
	return s
}

// likeness is by how much points deviate more from a line than independent ones would:
// what is live on a rank is the sum of several microbatches in flight, most of which
// are in the next record too. It is 1 to 3.
func likeness(x, y []float64, slope float64) float64 {
	rest := make([]float64, len(x))
	for i := range x {
		rest[i] = y[i] - slope*x[i]
	}
	sorted := slices.Sorted(slices.Values(rest))
	level := sorted[len(sorted)/2]
	var squares, next float64
	for i := range rest {
		squares += (rest[i] - level) * (rest[i] - level)
		if i > 0 {
			next += (rest[i] - level) * (rest[i-1] - level)
		}
	}
	if squares == 0 {
		return 1
	}
	r := min(max(next/squares, 0), 0.8)
	return math.Sqrt((1 + r) / (1 - r))
}

// rises reports whether chance does not explain the rise of so many points. Three that
// rise by the very same are no chance.
func (s slope) rises(points int) bool {
	return s.Least > 0 && (points >= leastPoints || points >= 3 && s.Low == s.High)
}

// goesOn reports whether the end of a rise may have its rate still: that it rises by less
// than half of the rate is chance. What saturates does not go on.
func goesOn(x, y []float64, rate float64) bool {
	return len(x) < 3 || fit(x, y).High >= rate/2
}

// quarter returns the last quarter of points, and three at least.
func quarter(x, y []float64) (lastX, lastY []float64) {
	from := max(len(x)-max(len(x)/4, 3), 0)
	return x[from:], y[from:]
}

// unclear reports whether points end above where they began, though chance may explain it:
// their last half is nowhere below the first, and rises, by no less than a quarter of what
// came before.
func unclear(y []float64) bool {
	half := len(y) / 2
	return half > 0 && 4*(y[len(y)-1]-y[half]) > y[half]-y[0] && slices.Min(y[half:]) >= slices.Max(y[:half])
}

// fitEnd returns the slope of the points, or else of their last half, or half of that, so
// many times: the first that rises, and goes on. The end of one that saturates must show it.
func fitEnd(x, y []float64, halves int) (s slope, ok bool) {
	saturates := false
	for part := 0; halves >= 0 && (part == 0 || len(x)-part >= leastPoints); halves-- {
		if s = fit(x[part:], y[part:]); s.rises(len(x) - part) {
			x, y := x[(part+len(x))/2:], y[(part+len(x))/2:]
			if goesOn(x, y, s.Median) && (!saturates || fit(x, y).Median >= s.Median/2) {
				return s, true
			}
			saturates = true
		}
		part += max((len(x)-part)/2, 1)
	}
	return s, false
}

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
