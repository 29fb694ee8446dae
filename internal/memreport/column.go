package memreport

import (
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/memory/memlog"
	"github.com/weir-ml/weir/trainer/report"
)

// place identifies a record in the log of its rank.
type place struct {
	Record     int64 // from 0
	Step       int64
	Microbatch int
}

// quantity is a number that columns summarize.
type quantity uint8

const (
	live quantity = iota
	peak
	reserved
	livePlanned
	peakPlanned
	numQuantities
)

// column summarizes consecutive records of one rank.
type column struct {
	First, Last place
	spans       [numQuantities]report.Bucket // of the records that have it, by the number of the record
	Classes     [memory.NumClasses]float64   // sums
}

// count returns the number of records in the column.
func (c *column) count() int { return c.spans[live].Count }

func (c *column) add(r *memlog.Record, at place) {
	if c.count() == 0 {
		c.First = at
	}
	c.Last = at
	values := [numQuantities]int64{live: r.Live, peak: r.Peak, reserved: r.Reserved, livePlanned: r.LivePlanned, peakPlanned: r.PeakPlanned}
	for q, n := range values {
		if r.Planned || quantity(q) < livePlanned {
			c.spans[q].Join(report.Point(float64(at.Record), float64(n)))
		}
	}
	for class, bytes := range r.Classes {
		c.Classes[class] += float64(bytes)
	}
}

// join adds the next column.
func (c *column) join(next column) {
	c.Last = next.Last
	for q := range c.spans {
		c.spans[q].Join(next.spans[q])
	}
	for class := range c.Classes {
		c.Classes[class] += next.Classes[class]
	}
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

// mostColumns is the maximum number of columns of a rank: about two for each dot of a page.
const mostColumns = 480

// columns holds the records of one rank. Each record has its own column while they fit; then
// neighbours are repeatedly joined in pairs.
type columns struct {
	list   []column
	stride int // records of a full column
}

func (c *columns) add(r *memlog.Record, at place) {
	c.stride = max(c.stride, 1)
	if n := len(c.list); n == 0 || c.list[n-1].count() == c.stride {
		if n == mostColumns {
			c.list = halved(c.list, (*column).join)
			c.stride *= 2
		}
		c.list = append(c.list, column{})
	}
	c.list[len(c.list)-1].add(r, at)
}
