package report

import "math"

// Bucket summarizes consecutive points.
type Bucket struct {
	First, Last float64 // x of the first and of the last point
	Min, Max    float64 // of y
	Sum         float64 // of y
	Count       int
}

// Mean returns the mean of y.
func (b Bucket) Mean() float64 { return b.Sum / float64(b.Count) }

// Join adds the points of another bucket.
func (b *Bucket) Join(other Bucket) {
	switch {
	case other.Count == 0:
		return
	case b.Count == 0:
		*b = other
		return
	}
	b.First, b.Last = min(b.First, other.First), max(b.Last, other.Last)
	b.Min, b.Max = min(b.Min, other.Min), max(b.Max, other.Max)
	b.Sum += other.Sum
	b.Count += other.Count
}

// Minus returns the bucket with all its y values reduced by y.
func (b Bucket) Minus(y float64) Bucket {
	b.Min, b.Max, b.Sum = b.Min-y, b.Max-y, b.Sum-y*float64(b.Count)
	return b
}

// Point returns a bucket that contains a single point.
func Point(x, y float64) Bucket { return Bucket{First: x, Last: x, Min: y, Max: y, Sum: y, Count: 1} }

// Envelope keeps any number of points in a fixed number of buckets. Each point has its own bucket as long as
// all points fit; after that, neighbors are repeatedly merged in pairs. Points whose y is not finite are
// ignored. The zero Envelope keeps nothing.
type Envelope struct {
	buckets []Bucket
	stride  int // points per bucket
}

// NewEnvelope returns an envelope of at most n buckets, rounded up to an even
// number, which is at least 2. All its memory is allocated here.
func NewEnvelope(n int) *Envelope {
	n = max(n, 2)
	n += n % 2
	return &Envelope{buckets: make([]Bucket, 0, n), stride: 1}
}

// Add adds a point. Points must be added in ascending order of x.
func (e *Envelope) Add(x, y float64) {
	if cap(e.buckets) == 0 || math.IsNaN(y) || math.IsInf(y, 0) {
		return
	}
	last := len(e.buckets) - 1
	if last < 0 || e.buckets[last].Count == e.stride {
		if len(e.buckets) == cap(e.buckets) {
			e.halve()
			e.Add(x, y)
			return
		}
		e.buckets = append(e.buckets, Point(x, y))
		return
	}
	e.buckets[last].Join(Point(x, y))
}

// halve merges neighbors in pairs.
func (e *Envelope) halve() {
	for i := range len(e.buckets) / 2 {
		e.buckets[i] = e.buckets[2*i]
		e.buckets[i].Join(e.buckets[2*i+1])
	}
	e.buckets = e.buckets[:len(e.buckets)/2]
	e.stride *= 2
}

// Buckets returns the buckets in order, borrowed until the next Add.
func (e *Envelope) Buckets() []Bucket { return e.buckets }

// Stride returns the number of points in a full bucket.
func (e *Envelope) Stride() int { return max(e.stride, 1) }
