package memreport

import (
	"cmp"
	"math"
	"slices"

	"github.com/weir-ml/weir/trainer/report"
)

// slope is the increase of y with x: the median of the slopes between all pairs of points, and
// Sen's 99 % confidence interval for it. Least is the lower bound at 99.99 %.
type slope struct {
	Median, Low, High float64
	Least             float64
}

// minPoints is the minimum number of points that can show growth: with fewer, more than one
// random series in a thousand would be in ascending order.
const minPoints = 7

// maxPoints is the maximum number of points for a slope. The number of pairs is about half its
// square.
const maxPoints = 256

// The numbers of standard deviations within which 99 % and 99.99 % of a normal distribution lie.
const (
	deviations99   = 2.576
	deviations9999 = 3.891
)

// fit returns the slope of points in strictly ascending order of x. It is 0 for fewer than two
// points.
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
	// Kendall's S of n points without a trend has this deviation, and a larger one if
	// neighboring points are correlated.
	deviation := math.Sqrt(float64(n*(n-1)*(2*n+5))/18) * correlation(x, y, s.Median)
	s.Low, s.High = at(math.Floor(middle-deviations99*deviation/2)), at(math.Ceil(middle+deviations99*deviation/2))
	s.Least = at(math.Floor(middle - deviations9999*deviation/2))
	return s
}

// correlation returns the factor by which points deviate more from a line than independent points
// would: a rank's live bytes are a sum over several microbatches in flight, most of which also
// contribute to the next record. It is between 1 and 3.
func correlation(x, y []float64, slope float64) float64 {
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

// rises reports whether the rise of this many points is too large to be due to chance. Three
// points with equal increments are not chance.
func (s slope) rises(points int) bool {
	return s.Least > 0 && (points >= minPoints || points >= 3 && s.Low == s.High)
}

// continues reports whether a rise may still have its rate at the end: the confidence interval of
// the slope there must reach half the rate. A level that saturates fails this test. Fewer than
// three points pass it.
func continues(x, y []float64, rate float64) bool {
	return len(x) < 3 || fit(x, y).High >= rate/2
}

// quarter returns the last quarter of the points, but at least three points, or all if there are
// fewer.
func quarter(x, y []float64) (lastX, lastY []float64) {
	from := max(len(x)-max(len(x)/4, 3), 0)
	return x[from:], y[from:]
}

// inconclusive reports whether points end higher than they began, though chance may explain this: the last half
// is nowhere below the first, and rises by more than a quarter of the earlier rise. The rate is the median
// slope, or the mean slope of the last half if the median is 0.
func inconclusive(x, y []float64) (rate float64, ok bool) {
	half, end := len(y)/2, len(y)-1
	if half == 0 || 4*(y[end]-y[half]) <= y[half]-y[0] || slices.Min(y[half:]) < slices.Max(y[:half]) {
		return 0, false
	}
	return cmp.Or(fit(x, y).Median, (y[end]-y[half])/(x[end]-x[half])), true
}

// fitEnd fits the points, then their last half, quarter and so on, up to halves times, and returns the first
// slope that rises and continues. A level that saturates must show this at its end.
func fitEnd(x, y []float64, halves int) (s slope, ok bool) {
	saturates := false
	for part := 0; halves >= 0 && (part == 0 || len(x)-part >= minPoints); halves-- {
		if s = fit(x[part:], y[part:]); s.rises(len(x) - part) {
			x, y := x[(part+len(x))/2:], y[(part+len(x))/2:]
			if continues(x, y, s.Median) && (!saturates || fit(x, y).Median >= s.Median/2) {
				return s, true
			}
			saturates = true
		}
		part += max((len(x)-part)/2, 1)
	}
	return s, false
}

// rise is a rise of values that begins at some position.
type rise struct {
	slope
	from, to int64 // the range of the first position that rises
}

// The numbers of times that riseOf halves the points in search of a late rise: from step to step, down to the
// last eighth of the log, and within a step, to its last half.
const (
	halvesOfLog  = 3
	halvesOfStep = 1
)

// riseOf returns the rise of cells, or false if they do not rise or if chance explains it. A late
// rise shows only in the last points, so it also checks the last half, quarter and so on, up to
// halves times. Points before the rise do not affect the slope.
func riseOf(cells []report.Bucket, halves int) (r rise, ok bool) {
	x, y := points(cells, maxPoints)
	if r.slope, ok = fitEnd(x, y, halves); !ok {
		return rise{}, false
	}
	r.from, r.to = start(cells, x, y, r.Median)
	flat := 0
	for flat < len(x)-minPoints && x[flat] < float64(r.from-1) {
		flat++
	}
	if again := fit(x[flat:], y[flat:]); again.rises(len(x) - flat) {
		r.slope = again
		r.from, r.to = start(cells, x, y, again.Median)
	}
	return r, true
}

// start returns the range in which the first position of a rise with the given slope lies. The
// range holds more than one position if positions share cells. x and y are the points of the
// cells; near the corner of the points, it looks at every cell.
func start(cells []report.Bucket, x, y []float64, slope float64) (from, to int64) {
	coarse, each := corner(x, y, slope), x[1]-x[0]
	low, high := x[max(coarse-2, 0)]-each, x[min(coarse+2, len(x)-1)]+each
	near := slices.DeleteFunc(slices.Clone(cells), func(c report.Bucket) bool { return c.Last < low || c.First > high })
	x, y = points(near, len(near))
	flat := corner(x, y, slope)
	next := min(flat+1, len(near)-1)
	return min(int64(near[flat].First)+1, int64(near[next].First)), int64(near[next].Last)
}

// corner returns the index of the last point before y starts to rise with the slope: the corner of
// the line, flat before a point and rising after it, with the least sum of absolute distances to
// the points. Squared distances would move it if the last points of a step fall, as they do if a
// pipeline drains.
func corner(x, y []float64, slope float64) int {
	best, least := 0, math.Inf(1)
	residuals := make([]float64, len(x))
	for i := range x {
		for j := range x {
			residuals[j] = y[j] - slope*max(0, x[j]-x[i])
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
