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
}

func (s *span) add(n int64, first bool) {
	if first {
		*s = span{n, n, float64(n)}
		return
	}
	s.Min, s.Max = min(s.Min, n), max(s.Max, n)
	s.Sum += float64(n)
}

func (s *span) join(t span) {
	s.Min, s.Max = min(s.Min, t.Min), max(s.Max, t.Max)
	s.Sum += t.Sum
}

// column stands for a run of consecutive records of one rank.
type column struct {
	First, Last              place
	Count                    int
	Live, Peak, Reserved     span
	LivePlanned, PeakPlanned span
	Planned                  int // how many of the records are planned
	Excess                   span
	Classes                  [memory.NumClasses]float64 // sums
}

func (c *column) add(r *memlog.Record, at place) {
	first := c.Count == 0
	if first {
		c.First = at
	}
	c.Last = at
	c.Live.add(r.Live, first)
	c.Peak.add(r.Peak, first)
	c.Reserved.add(r.Reserved, first)
	c.Excess.add(r.Excess, first)
	if r.Planned {
		c.LivePlanned.add(r.LivePlanned, c.Planned == 0)
		c.PeakPlanned.add(r.PeakPlanned, c.Planned == 0)
		c.Planned++
	}
	for class, bytes := range r.Classes {
		c.Classes[class] += float64(bytes)
	}
	c.Count++
}

// join adds the column that follows.
func (c *column) join(next *column) {
	c.Last = next.Last
	c.Live.join(next.Live)
	c.Peak.join(next.Peak)
	c.Reserved.join(next.Reserved)
	c.Excess.join(next.Excess)
	switch {
	case c.Planned == 0:
		c.LivePlanned, c.PeakPlanned = next.LivePlanned, next.PeakPlanned
	case next.Planned > 0:
		c.LivePlanned.join(next.LivePlanned)
		c.PeakPlanned.join(next.PeakPlanned)
	}
	c.Planned += next.Planned
	for class := range c.Classes {
		c.Classes[class] += next.Classes[class]
	}
	c.Count += next.Count
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
	if last < 0 || c.list[last].Count == c.stride {
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
