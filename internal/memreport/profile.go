package memreport

// mostCells is how many positions, and so how many steps, a profile keeps apart where
// it does not say so itself.
const mostCells = 2048

// cell stands for some positions in a row: those of a step's records, or of steps.
type cell struct {
	first, last int64 // positions
	count       int64
	sum         float64
	min, max    float64
}

func (c *cell) join(next cell) {
	if next.count == 0 {
		return
	}
	if c.count == 0 {
		*c = next
		return
	}
	c.first, c.last = min(c.first, next.first), max(c.last, next.last)
	c.min, c.max = min(c.min, next.min), max(c.max, next.max)
	c.sum += next.sum
	c.count += next.count
}

// lower subtracts a value from all that the cell stands for.
func (c *cell) lower(by float64) {
	c.sum -= by * float64(c.count)
	c.min, c.max = c.min-by, c.max-by
}

// profile has values by position, any number of them at each: their mean, least and
// most. While all positions fit each has a cell of its own; then neighbours share one.
type profile struct {
	cells  []cell
	stride int64 // positions of a cell
	most   int64 // cells; 0 is mostCells
}

// add adds a value at a position; the next one is at most one further than any before.
func (p *profile) add(position int64, value float64) {
	p.stride = max(p.stride, 1)
	if p.most == 0 {
		p.most = mostCells
	}
	for position/p.stride >= p.most {
		for i := range (len(p.cells) + 1) / 2 {
			c := p.cells[2*i]
			if 2*i+1 < len(p.cells) {
				c.join(p.cells[2*i+1])
			}
			p.cells[i] = c
		}
		p.cells = p.cells[:(len(p.cells)+1)/2]
		p.stride *= 2
	}
	i := int(position / p.stride)
	if i == len(p.cells) {
		p.cells = append(p.cells, cell{})
	}
	p.cells[i].join(cell{position, position, 1, value, value, value})
}

// points returns the middles of the cells and the means of their values, of at most n
// points: neighbours share one where there are more.
func (p *profile) points(n int) (x, y []float64) {
	each := (len(p.cells) + n - 1) / n
	for from := 0; from < len(p.cells); from += each {
		var c cell
		for _, next := range p.cells[from:min(from+each, len(p.cells))] {
			c.join(next)
		}
		x = append(x, float64(c.first+c.last)/2)
		y = append(y, c.sum/float64(c.count))
	}
	return x, y
}

// rise is how values rise, from a position on.
type rise struct {
	slope
	from, to int64 // the first position that rises lies between them
}

// rise returns how the values rise, and false where they do not, or where chance
// explains it. What begins late shows in the last points alone, which are looked at as
// well: the last halves, so many times.
func (p *profile) rise(halves int) (r rise, ok bool) {
	x, y := p.points(mostPoints)
	s, ok := fitEnd(x, y, halves)
	if !ok {
		return rise{}, false
	}
	return p.from(x, y, s), true
}

// from returns the rise of points that rise with about this slope in the end. What
// comes before the rise has no part in its slope.
func (p *profile) from(x, y []float64, s slope) rise {
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

// start returns the first position at which the values have begun to rise with the
// slope, and the last that it may be where positions share cells. The points are those
// of the profile; near what they say every cell is looked at.
func (p *profile) start(x, y []float64, slope float64) (from, to int64) {
	coarse, each := hinge(x, y, slope), x[1]-x[0]
	low, high := x[max(coarse-2, 0)]-each, x[min(coarse+2, len(x)-1)]+each
	x, y = nil, nil
	var near []cell
	for _, c := range p.cells {
		if float64(c.last) >= low && float64(c.first) <= high {
			near = append(near, c)
			x, y = append(x, float64(c.first+c.last)/2), append(y, c.sum/float64(c.count))
		}
	}
	flat := hinge(x, y, slope)
	next := min(flat+1, len(near)-1)
	return min(near[flat].first+1, near[next].first), near[next].last
}
