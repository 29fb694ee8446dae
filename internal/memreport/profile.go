package memreport

import (
	"slices"

	"github.com/weir-ml/weir/trainer/report"
)

// mostCells is the default number of cells of a profile.
const mostCells = 2048

// profile summarizes values by position: mean, minimum and maximum. Each position has its own
// cell while they fit; then neighbours share one.
type profile struct {
	cells  []report.Bucket // x is a position: of a record in its step, or of a step
	stride int64           // positions of a cell
	most   int64           // maximum number of cells; 0 is mostCells
}

// add adds a value at a position, which is at most one greater than all before.
func (p *profile) add(position int64, value float64) {
	p.stride = max(p.stride, 1)
	if p.most == 0 {
		p.most = mostCells
	}
	for position/p.stride >= p.most {
		p.widen(2 * p.stride)
	}
	i := int(position / p.stride)
	if i == len(p.cells) {
		p.cells = append(p.cells, report.Bucket{})
	}
	p.cells[i].Join(report.Point(float64(position), value))
}

// widen joins the cells of a profile until each has stride positions.
func (p *profile) widen(stride int64) {
	for p.stride = max(p.stride, 1); p.stride < stride; p.stride *= 2 {
		p.cells = halved(p.cells, (*report.Bucket).Join)
	}
}

// join adds the values of another profile, whose cells it takes over.
func (p *profile) join(next profile) {
	p.widen(next.stride)
	next.widen(p.stride)
	n := min(len(p.cells), len(next.cells))
	for i := range n {
		p.cells[i].Join(next.cells[i])
	}
	p.cells = append(p.cells, next.cells[n:]...)
}

// minus returns the differences between the means of p and of another profile, as far as both go.
func (p *profile) minus(other *profile) (d profile) {
	low := profile{cells: slices.Clone(other.cells), stride: other.stride}
	d = profile{cells: slices.Clone(p.cells), stride: p.stride}
	low.widen(d.stride)
	d.widen(low.stride)
	d.cells = d.cells[:min(len(d.cells), len(low.cells))]
	for i := range d.cells {
		c := &d.cells[i]
		difference := report.Point(c.First, c.Mean()-low.cells[i].Mean())
		difference.Last = c.Last
		*c = difference
	}
	return d
}

// buckets returns the cells as at most n buckets.
func (p *profile) buckets(n int) (list []report.Bucket) {
	for cells := range slices.Chunk(p.cells, max((len(p.cells)+n-1)/n, 1)) {
		var c report.Bucket
		for _, next := range cells {
			c.Join(next)
		}
		list = append(list, c)
	}
	return list
}

// middles returns the middles of buckets and the means of their values.
func middles(list []report.Bucket) (x, y []float64) {
	for _, b := range list {
		x, y = append(x, (b.First+b.Last)/2), append(y, b.Mean())
	}
	return x, y
}

// rise is the rise of values from a position on.
type rise struct {
	slope
	from, to int64 // the range of the first position that rises
}

// rise returns the rise of the values, or false if they do not rise or if chance explains it. A
// late rise shows only in the last points, so that the last half, quarter and so on are checked
// too, up to halves times.
func (p *profile) rise(halves int) (r rise, ok bool) {
	x, y := middles(p.buckets(mostPoints))
	s, ok := fitEnd(x, y, halves)
	if !ok {
		return rise{}, false
	}
	return p.refined(x, y, s), true
}

// refined returns the rise of points that rise with about this slope at the end. Points before the
// rise do not affect the slope.
func (p *profile) refined(x, y []float64, s slope) rise {
	r := rise{slope: s}
	r.from, r.to = p.start(x, y, s.Median)
	flat := 0
	for flat < len(x)-leastPoints && x[flat] < float64(r.from-1) {
		flat++
	}
	if again := fit(x[flat:], y[flat:]); again.rises(len(x) - flat) {
		r.slope = again
		r.from, r.to = p.start(x, y, again.Median)
	}
	return r
}

// start returns the range of the first position at which the values rise with the slope; it is
// more than one if positions share cells. The points are the profile's; near the start it checks
// every cell.
func (p *profile) start(x, y []float64, slope float64) (from, to int64) {
	coarse, each := hinge(x, y, slope), x[1]-x[0]
	low, high := x[max(coarse-2, 0)]-each, x[min(coarse+2, len(x)-1)]+each
	var near []report.Bucket
	for _, c := range p.cells {
		if c.Last >= low && c.First <= high {
			near = append(near, c)
		}
	}
	x, y = middles(near)
	flat := hinge(x, y, slope)
	next := min(flat+1, len(near)-1)
	return min(int64(near[flat].First)+1, int64(near[next].First)), int64(near[next].Last)
}
