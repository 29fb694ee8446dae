package lengths

import "math"

// Point is a measured value of an amount.
type Point struct {
	Size  Size
	Value float64
}

// Fit returns the amount that has the least sum of squared relative deviations from the points, and
// the largest of these deviations: 0.03 means that one point is 3 percent off. No coefficient is
// negative. Points whose value is not positive are weighted by the largest value. Coefficients that the
// points do not determine are 0: with equal squares per token, for example, Square is 0.
func Fit(points []Point) (best Amount, misfit float64) {
	largest := 0.0
	for _, p := range points {
		largest = max(largest, p.Value)
	}
	if largest == 0 {
		return Amount{}, 0
	}
	// The best coefficients of at least 0 are the least-squares solution for one of the subsets of the coefficients,
	// with all others 0. A smaller subset wins a tie.
	least := math.Inf(1)
	for _, subset := range [...][]int{{0}, {1}, {2}, {0, 1}, {0, 2}, {1, 2}, {0, 1, 2}} {
		candidate, ok := solve(points, subset, largest)
		if !ok {
			continue
		}
		sum, worst := 0.0, 0.0
		for _, p := range points {
			deviation := math.Abs(candidate.At(p.Size)-p.Value) / weight(p.Value, largest)
			sum, worst = sum+deviation*deviation, max(worst, deviation)
		}
		if sum < least*(1-1e-9)-1e-18 {
			least, best, misfit = sum, candidate, worst
		}
	}
	return best, misfit
}

// weight returns the value by which a deviation from a point is divided.
func weight(value, largest float64) float64 {
	if value > 0 {
		return value
	}
	return largest
}

// solve returns the least-squares amount that has only the coefficients of the subset: 0 is the constant, 1 the tokens,
// 2 the squares. It returns false if a coefficient is negative or not determined.
func solve(points []Point, subset []int, largest float64) (a Amount, ok bool) {
	var scale [3]float64 // brings the three columns to the same magnitude
	for _, p := range points {
		for k, v := range row(p) {
			scale[k] = max(scale[k], v/weight(p.Value, largest))
		}
	}
	n := len(subset)
	var m [3][4]float64 // the normal equations
	for _, p := range points {
		r, w := row(p), weight(p.Value, largest)
		for i, from := range subset {
			for j, to := range subset {
				m[i][j] += r[from] / w / scale[from] * r[to] / w / scale[to]
			}
			m[i][n] += r[from] / w / scale[from] * p.Value / w
		}
	}
	for i := range n { // elimination, with the largest pivot
		pivot := i
		for r := i + 1; r < n; r++ {
			if math.Abs(m[r][i]) > math.Abs(m[pivot][i]) {
				pivot = r
			}
		}
		m[i], m[pivot] = m[pivot], m[i]
		if math.Abs(m[i][i]) < 1e-12*float64(len(points)) {
			return a, false
		}
		for r := range n {
			if r == i {
				continue
			}
			factor := m[r][i] / m[i][i]
			for c := i; c <= n; c++ {
				m[r][c] -= factor * m[i][c]
			}
		}
	}
	var x [3]float64
	for i, k := range subset {
		if x[k] = m[i][n] / m[i][i] / scale[k]; !(x[k] >= 0) {
			return a, false
		}
	}
	return Amount{x[0], x[1], x[2]}, true
}

// row returns the factors by which the coefficients of an amount are multiplied.
func row(p Point) [3]float64 {
	return [3]float64{1, float64(p.Size.Tokens), float64(p.Size.Squares)}
}
