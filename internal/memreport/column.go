package memreport

import (
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/memory/memlog"
)

// place is where a record stands in the log of its rank.
type place struct {
	Record     int64 // from 0
	Step       int64
	Microbatch int
}

// span is what some records had of something, in bytes.
type span struct {
	Min, Max int64
	Sum      float64
	Count    int // of the records that say it
}

func (s *span) add(n int64) { s.join(&span{n, n, float64(n), 1}) }

func (s *span) join(t *span) {
	if s.Count == 0 || t.Count == 0 {
		if s.Count == 0 {
			*s = *t
		}
		return
	}
	s.Min, s.Max = min(s.Min, t.Min), max(s.Max, t.Max)
	s.Sum += t.Sum
	s.Count += t.Count
}

// quantity is what a column keeps of its records.
type quantity uint8

const (
	live quantity = iota
	peak
	reserved
	livePlanned
	peakPlanned
	numQuantities
)

// column stands for a run of consecutive records of one rank.
type column struct {
	First, Last place
	spans       [numQuantities]span
	Classes     [memory.NumClasses]float64 // sums
}

// count returns how many records the column stands for.
func (c *column) count() int { return c.spans[live].Count }

func (c *column) add(r *memlog.Record, at place) {
	if c.count() == 0 {
		c.First = at
	}
	c.Last = at
	said := [numQuantities]int64{live: r.Live, peak: r.Peak, reserved: r.Reserved, livePlanned: r.LivePlanned, peakPlanned: r.PeakPlanned}
	for q, n := range said {
		if r.Planned || quantity(q) < livePlanned {
			c.spans[q].add(n)
		}
	}
	for class, bytes := range r.Classes {
		c.Classes[class] += float64(bytes)
	}
}

// join adds the column that follows.
func (c *column) join(next *column) {
	c.Last = next.Last
	for q := range c.spans {
		c.spans[q].join(&next.spans[q])
	}
	for class := range c.Classes {
		c.Classes[class] += next.Classes[class]
	}
}

// mostColumns is how many columns a rank has: about two for each dot of a page.
const mostColumns = 480

// columns are the records of one rank. While they fit each has a column of its own;
// then neighbours are joined in pairs, again and again.
type columns struct {
	list   []column
	stride int // records of a full column
}

func (c *columns) add(r *memlog.Record, at place) {
	last := len(c.list) - 1
	if last < 0 || c.list[last].count() == c.stride {
		if len(c.list) == mostColumns {
			for i := 0; i < len(c.list); i += 2 {
				c.list[i/2] = c.list[i]
				c.list[i/2].join(&c.list[i+1])
			}
			c.list = c.list[:len(c.list)/2]
			c.stride *= 2
		}
		c.stride = max(c.stride, 1)
		c.list = append(c.list, column{})
		last = len(c.list) - 1
	}
	c.list[last].add(r, at)
}
