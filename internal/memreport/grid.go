package memreport

import (
	"math"
	"slices"
)

const (
	// mostGrid is how many cells a grid has, and mostPlaces how many of them are of one row.
	mostGrid   = 1 << 15
	mostPlaces = 256
	// rowPoints is over how many points the slope of a row is taken.
	rowPoints = 24
)

// grid has the levels of a rank by step and by position in the step: a row for each step
// and a cell for each position while they fit, then for several.
type grid struct {
	rows   []gridRow
	steps  int64 // of a row
	stride int64 // positions of a cell
}

// gridRow stands for some steps in a row.
type gridRow struct {
	first, last int64 // numbers of the steps
	level       mean  // of the first records
	cells       []mean
}

// mean is the mean of some values.
type mean struct {
	sum   float64
	count int64
}

func (m *mean) add(n mean)    { m.sum, m.count = m.sum+n.sum, m.count+n.count }
func (m mean) value() float64 { return m.sum / float64(max(m.count, 1)) }
func one(value float64) mean  { return mean{value, 1} }
func joined(a, b []mean) []mean { // by place
	if len(a) < len(b) {
		a, b = b, a
	}
	for i := range b {
		a[i].add(b[i])
	}
	return a
}

// add adds the level of a record above that of the first of its step.
func (g *grid) add(step, number, position int64, first, above float64) {
	g.steps, g.stride = max(g.steps, 1), max(g.stride, 1)
	for position/g.stride >= mostPlaces {
		for r := range g.rows {
			g.rows[r].cells = halved(g.rows[r].cells, (*mean).add)
		}
		g.stride *= 2
	}
	at := int(step / g.steps)
	if at == len(g.rows) {
		if len(g.rows) > 1 && len(g.rows)*max(len(g.rows[0].cells), 16) >= mostGrid {
			g.rows = halved(g.rows, func(row *gridRow, next gridRow) {
				row.last, row.cells = next.last, joined(row.cells, next.cells)
				row.level.add(next.level)
			})
			g.steps *= 2
			at = int(step / g.steps)
		}
		if at == len(g.rows) {
			g.rows = append(g.rows, gridRow{first: number})
		}
	}
	row, place := &g.rows[at], int(position/g.stride)
	row.last = number
	if position == 0 {
		row.level.add(one(first))
	}
	if place == len(row.cells) {
		row.cells = append(row.cells, mean{})
	}
	row.cells[place].add(one(above))
}

// at returns the middle of the positions of a cell.
func (g *grid) at(place int) float64 {
	return float64(int64(place)*g.stride) + float64(g.stride-1)/2
}

// start is a rise that begins in a later step than the first.
type start struct {
	slope
	step, lastStep int64 // the first step that rises is one of these
	from, to       int64 // so is its position in it
	row            int
}

// late returns the rise of the levels within steps that begins in some step after the
// first: the steps before it rise less, and the difference rises from position to
// position. It is false where there is none, or where chance explains it.
func (g *grid) late() (s start, ok bool) {
	n := len(g.rows)
	if n < 3 {
		return s, false
	}
	slopes := make([]float64, n)
	for i := range g.rows {
		slopes[i] = g.rowSlope(i)
	}
	s.row = cut(slopes)
	if !apart(slopes[:s.row], slopes[s.row:]) {
		return s, false
	}
	before, after := g.mean(0, s.row), g.mean(s.row, n)
	x, d := g.above(after, before)
	_, level := g.above(after, nil)
	if s.slope, ok = fitEnd(x, d, 1); !ok {
		return s, false
	}
	if _, rises := fitEnd(x, level, 1); !rises { // It fell before, and does so less.
		return s, false
	}
	if s.row > 1 { // It may have begun in the middle of the step before.
		earlier := g.mean(0, s.row-1)
		if _, e := g.above(g.rows[s.row-1].cells, earlier); len(e) > 0 && e[len(e)-1] > s.Median/2 {
			s.row, before = s.row-1, earlier
		}
	}
	if s.row+1 < n { // Rows that rise from their beginning have the rate alone.
		x, d = g.above(g.mean(s.row+1, n), before)
		if again, ok := fitEnd(x, d, 1); ok {
			s.slope = again
		}
	}
	s.step, s.lastStep = g.rows[s.row].first, g.rows[s.row].last
	x, e := g.above(g.rows[s.row].cells, before)
	flat := hinge(x, e, s.Median)
	s.from = int64(flat)*g.stride + 1
	s.to = max(s.from, int64(flat+2)*g.stride-1)
	jump := g.rows[s.row].level.value() - g.rows[s.row-1].level.value()
	if flat == 0 && g.steps == 1 && math.Abs(jump-s.Median) < s.Median/2 { // its first microbatch grew as well
		s.from, s.to = 0, g.stride-1
	}
	return s, true
}

// end returns how the steps from a row on rise, from position to position.
func (g *grid) end(row int) (x, y []float64) {
	return g.above(g.mean(row, len(g.rows)), nil)
}

// mean returns the means of some rows by place.
func (g *grid) mean(from, to int) []mean {
	var all []mean
	for _, row := range g.rows[from:to] {
		all = joined(slices.Clone(row.cells), all)
	}
	return all
}

// above returns how far some cells are above others, and where they are; nil is 0.
func (g *grid) above(cells, others []mean) (x, y []float64) {
	places := len(cells)
	if others != nil {
		places = min(places, len(others))
	}
	each := (places + mostPoints - 1) / mostPoints
	for i := 0; i < places; i += max(each, 1) {
		v := cells[i].value()
		if others != nil {
			v -= others[i].value()
		}
		x, y = append(x, g.at(i)), append(y, v)
	}
	return x, y
}

// rowSlope returns how a row rises from position to position.
func (g *grid) rowSlope(row int) float64 {
	var x, y []float64
	cells := g.rows[row].cells
	each := (len(cells) + rowPoints - 1) / rowPoints
	for from := 0; from < len(cells); from += each {
		var m mean
		last := min(from+each, len(cells))
		for _, c := range cells[from:last] {
			m.add(c)
		}
		x, y = append(x, (g.at(from)+g.at(last-1))/2), append(y, m.value())
	}
	return fit(x, y).Median
}

// cut returns where a list of at least two values is best cut into two that are
// constant, by least squares.
func cut(values []float64) int {
	total := 0.0
	for _, v := range values {
		total += v
	}
	best, most, left := 1, -1.0, 0.0
	for k := 1; k < len(values); k++ {
		left += values[k-1]
		right := total - left
		if gain := left*left/float64(k) + right*right/float64(len(values)-k) - total*total/float64(len(values)); gain > most {
			best, most = k, gain
		}
	}
	return best
}

// apart reports whether the values on the right are above those on the left: each side is
// all but constant, or its ranks are further apart than chance explains, though the cut is
// where they are furthest.
func apart(left, right []float64) bool {
	gap := slices.Min(right) - slices.Max(left)
	noise := slices.Max(right) - slices.Min(right) + slices.Max(left) - slices.Min(left)
	if gap > 0 && noise <= gap/10 {
		return true
	}
	above := 0.0
	for _, r := range right {
		for _, l := range left {
			switch {
			case r > l:
				above++
			case r == l:
				above += 0.5
			}
		}
	}
	l, r := float64(len(left)), float64(len(right))
	return (above-l*r/2)/math.Sqrt(l*r*(l+r+1)/12) > 4.5
}
