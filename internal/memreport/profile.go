package memreport

import (
	"slices"

	"github.com/weir-ml/weir/trainer/report"
)

// compact is a list of summaries of consecutive numbers, such as those of records. Each number
// has its own element while they fit; then neighbours are repeatedly joined in pairs.
type compact[T any] struct {
	list   []T
	stride int64 // numbers of a full element
}

// at returns the element of a number, which is at most one greater than all before. There are
// never more than most elements.
func (c *compact[T]) at(number, most int64, join func(into *T, next T)) *T {
	c.stride = max(c.stride, 1)
	for ; number/c.stride >= most; c.stride *= 2 {
		c.list = halved(c.list, join)
	}
	i := int(number / c.stride)
	if i == len(c.list) {
		c.list = append(c.list, *new(T))
	}
	return &c.list[i]
}

// halved joins neighbours in pairs. The last element of an odd number stays alone.
func halved[T any](list []T, join func(into *T, next T)) []T {
	for i := range list {
		if i%2 == 0 {
			list[i/2] = list[i]
		} else {
			join(&list[i/2], list[i])
		}
	}
	n := (len(list) + 1) / 2
	clear(list[n:])
	return list[:n]
}

// mostCells is the maximum number of cells of a profile, and mostStepCells of the profile of a
// step.
const mostCells, mostStepCells = 2048, 4096

// profile summarizes values by position: of a record in its step, or of a step in the log.
type profile struct{ compact[report.Bucket] }

// add adds a value at a position, which is at most one greater than all before.
func (p *profile) add(position, most int64, value float64) {
	p.at(position, most, (*report.Bucket).Join).Join(report.Point(float64(position), value))
}

// chunked joins neighbours so that at most n are left.
func chunked(list []report.Bucket, n int) (chunks []report.Bucket) {
	for cells := range slices.Chunk(list, max((len(list)+n-1)/n, 1)) {
		var c report.Bucket
		for _, next := range cells {
			c.Join(next)
		}
		chunks = append(chunks, c)
	}
	return chunks
}

// points returns the middles of at most n cells, and the means of their values.
func points(list []report.Bucket, n int) (x, y []float64) {
	for _, b := range chunked(list, n) {
		x, y = append(x, (b.First+b.Last)/2), append(y, b.Mean())
	}
	return x, y
}
