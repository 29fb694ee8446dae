package passes

import (
	"math"
	"slices"
)

// A clock leaps over repeats as a walk does, and by the same argument. A period is a
// number of rounds after which every rank is back at the same place of its body, moved
// on by the same number of microbatches or not at all, and what is on its way between
// ranks has moved with them. A clock notes the branches of a period, supposes that
// everything keeps moving as it did in it, and tries a period far ahead: where that one
// takes the same branches and moves everything as far, all between do.
type period struct {
	watching bool // a period is looked for
	passed   int  // rounds since the snapshot
	limit    int  // the rounds at which the next snapshot is taken
	snapshot formation
	spare    formation // before a trial
	steps    []int     // by rank: the repeats of a period
	drift    []drift   // by stretch of all queues: how it changes in a period
	again    []drift   // in a trial
}

// formation is where everything but the sets is.
type formation struct {
	ranks  []Cursor
	duties []Duty
	items  []stretch // of all queues
	ends   []int     // of each queue in items
}

// firstPeriod and lastPeriod bound the rounds within which a period is looked for.
const firstPeriod, lastPeriod = 16, 1 << 14

// watch begins to look for a period of at most so many rounds.
func (c *Clock) watch(v clocked, rounds int) {
	if c.watching {
		c.passed, c.limit = 0, rounds
		c.keep(&c.snapshot)
		c.record(&c.last)
		v.Begin()
	}
}

// seek leaps if the round was the last one of a period.
func (c *Clock) seek(v clocked) {
	c.passed++
	stride, n := c.leap(v)
	switch {
	case n > 0:
		v.Repeats(n, stride)
		c.watch(v, firstPeriod)
	case c.Log == nil || c.passed == c.limit:
		c.watch(v, min(2*c.limit, lastPeriod))
	}
}

// leap moves everything from behind a period to before a later one, and returns by
// how many microbatches a period moves and the number of periods between the two: 0
// where no period ends here, or where nothing can be said of later ones.
func (c *Clock) leap(v clocked) (stride, n int64) {
	stride, n = c.ends()
	if n < 1 {
		return 0, 0
	}
	c.Log = nil
	var ok bool
	if c.drift, ok = c.drifts(c.drift, &c.snapshot, stride); !ok || !c.slopes() {
		return 0, 0
	}
	c.trace, c.past = c.past, c.trace
	for ; n > 0 && !c.Exhausted; n /= 2 {
		if !c.fits(n) || !c.move(n) {
			continue
		}
		c.shift(n)
		if c.try(v, stride) {
			return stride, n
		}
		c.shift(-n)
		c.move(-n)
	}
	return 0, 0
}

// ends returns by how many microbatches the rounds since the snapshot moved, if they
// are a period, and over how many more one could leap.
func (c *Clock) ends() (stride, most int64) {
	most = math.MaxInt64
	for rank := range c.Ranks {
		now, then := &c.Ranks[rank], &c.snapshot.ranks[rank]
		if now.Segment != then.Segment || now.Index != then.Index {
			return 0, 0
		}
		step := now.Repeat - then.Repeat
		if c.steps[rank] = step; step == 0 {
			continue
		}
		s := &now.Program[now.Segment]
		if moved := int64(step) * int64(s.Stride); stride == 0 {
			stride = moved
		} else if stride != moved {
			return 0, 0
		}
		most = min(most, int64((s.Repeat-1-now.Repeat)/step)-1)
	}
	if stride == 0 {
		return 0, 0
	}
	for rank, d := range c.snapshot.duties {
		if c.steps[rank] != 0 {
			d = d.moved(int(stride))
		}
		if c.Duties[rank] != d {
			return 0, 0
		}
	}
	return stride, most
}

// moved returns the duty of another microbatch.
func (d Duty) moved(n int) Duty {
	d.Action = d.Action.Shift(n)
	if d.With != 0 {
		d.With = d.With.Shift(n)
	}
	return d
}

// drifts returns how everything in the queues has changed since then, and reports
// whether each end of each stretch has stood still or moved by the stride.
func (c *Clock) drifts(list []drift, since *formation, stride int64) ([]drift, bool) {
	list = list[:0]
	begin := 0
	for i := range c.Queues {
		now, then := c.Queues[i].List(), since.items[begin:since.ends[i]]
		begin = since.ends[i]
		if len(now) != len(then) {
			return list, false
		}
		for k := range now {
			d, ok := now[k].since(then[k], int(stride))
			if !ok {
				return list, false
			}
			list = append(list, d)
		}
	}
	return list, true
}

// fits reports whether the queues are as many stretches n periods later.
func (c *Clock) fits(n int64) bool {
	i := 0
	for q := range c.Queues {
		for _, s := range c.Queues[q].List() {
			if _, ok := s.moved(c.drift[i], int(n)); !ok {
				return false
			}
			i++
		}
	}
	return true
}

// shift moves ranks and queues by n periods.
func (c *Clock) shift(n int64) {
	for rank, step := range c.steps {
		if step == 0 {
			continue
		}
		p := &c.Ranks[rank]
		s := &p.Program[p.Segment]
		p.Repeat += int(n) * step
		p.Position += n * int64(step) * int64(len(s.Body))
		c.Duties[rank] = c.Duties[rank].moved(int(n) * step * s.Stride)
	}
	i := 0
	for q := range c.Queues {
		list := c.Queues[q].List()
		for k := range list {
			list[k], _ = list[k].moved(c.drift[i], int(n))
			c.Queues[q].N += int(n) * c.drift[i].n
			i++
		}
	}
}

// try runs as many rounds as the period has and undoes them, and reports whether they
// did the same.
func (c *Clock) try(v clocked, stride int64) bool {
	c.keep(&c.spare)
	c.record(&c.next)
	c.Trial = true
	for range c.passed {
		c.round(v)
	}
	c.Trial, c.Log = false, nil
	again, same := c.drifts(c.again, &c.spare, stride)
	c.again = again
	same = same && slices.Equal(again, c.drift) && c.alike()
	c.restore(&c.next)
	c.resume(&c.spare)
	return same
}

// keep notes where everything but the sets is.
func (c *Clock) keep(f *formation) {
	f.ranks = append(f.ranks[:0], c.Ranks...)
	f.duties = append(f.duties[:0], c.Duties...)
	f.items, f.ends = f.items[:0], f.ends[:0]
	for i := range c.Queues {
		f.items = append(f.items, c.Queues[i].List()...)
		f.ends = append(f.ends, len(f.items))
	}
}

// resume goes back to where everything was.
func (c *Clock) resume(f *formation) {
	copy(c.Ranks, f.ranks)
	copy(c.Duties, f.duties)
	begin := 0
	for i, end := range f.ends {
		c.Queues[i].fill(f.items[begin:end])
		begin = end
	}
}
