package memreport

import (
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/memory/memlog"
	"github.com/weir-ml/weir/trainer/report"
)

// recordKey identifies a record in the log of its rank.
type recordKey struct {
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
	First, Last recordKey
	spans       [numQuantities]report.Bucket // of the records that have the quantity; x is the record's number
	Classes     [memory.NumClasses]float64   // sums over the records, in bytes
}

// count returns the number of records in the column.
func (c *column) count() int { return c.spans[live].Count }

func (c *column) add(r *memlog.Record, at recordKey) {
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

// join merges the next column into this one.
func (c *column) join(next column) {
	c.Last = next.Last
	for q := range c.spans {
		c.spans[q].Join(next.spans[q])
	}
	for class := range c.Classes {
		c.Classes[class] += next.Classes[class]
	}
}

// maxColumns is the maximum number of columns of a rank: about two for each dot of a page.
const maxColumns = 480

// columns holds the records of one rank.
type columns struct{ compact[column] }

func (c *columns) add(r *memlog.Record, at recordKey) {
	c.at(at.Record, maxColumns, (*column).join).add(r, at)
}
