package memreport

import (
	"slices"

	"github.com/weir-ml/weir/trainer/report"
)

// compact is a list of summaries, indexed by consecutive numbers such as those of records. Each number has its
// own element as long as all elements fit; after that, neighbors are repeatedly joined in pairs.
type compact[T any] struct {
	list   []T
	stride int64 // numbers of a full element
}

// at returns the element for a number, which is at most one greater than all previous numbers.
// The list never has more than most elements.
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

// halved joins neighbors in pairs. If their number is odd, the last one remains unchanged.
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

// maxCells is the maximum number of cells in a profile, and maxStepCells the maximum in a
// step's profile.
const maxCells, maxStepCells = 2048, 4096

// profile summarizes values by position, which is the position of a record in its step or of a step in the log.
type profile struct{ compact[report.Bucket] }

// add adds a value at a position, which is at most one greater than all previous positions.
func (p *profile) add(position, most int64, value float64) {
	p.at(position, most, (*report.Bucket).Join).Join(report.Point(float64(position), value))
}

// chunked joins neighbors until at most n buckets are left.
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

// points joins cells until at most n are left, and returns their middles and the means of their
// values.
func points(list []report.Bucket, n int) (x, y []float64) {
	for _, b := range chunked(list, n) {
		x, y = append(x, (b.First+b.Last)/2), append(y, b.Mean())
	}
	return x, y
}
