package choose

import (
	"cmp"
	"slices"
)

// justify improves an order by forward-backward improvement, a method of project scheduling: it
// first moves each task as late as possible, from the last to the first, and then as early as
// possible, from the first to the last. A task moves into its rank's first gap that is long enough and in
// which the rank stays within the limit of bytes. This fills gaps at the beginning and the end of the
// step, and never makes the step longer.
//
// The order must be the order of the latest run, and must stay within the limit. Afterwards, the returned order is the
// order of the latest run.
func (e *evaluator) justify(o order, limit int64) (order, timing) {
	jobs := make([]job, 0, e.tasks())
	clear(e.started)
	for rank, tasks := range o {
		for i, t := range tasks {
			jobs = append(jobs, job{t, e.started[t], -(e.starts[rank][i] + e.duration[t])})
			e.started[t]++
		}
	}
	late := newPartialSchedule(e.jobShop, true)
	late.place(jobs, limit)
	for i, j := range jobs {
		jobs[i].key = -late.ends[j.task][j.mb]
	}
	early := newPartialSchedule(e.jobShop, false)
	early.place(jobs, limit)
	o = early.order()
	t, _ := e.run(o)
	return o, t
}

// job is a task of a microbatch. Jobs are placed in ascending order of their keys.
type job struct {
	task task
	mb   int
	key  int64
}

// partialSchedule assigns times to the jobs that have been placed. If it is reversed, time runs
// backward from the end of the step.
type partialSchedule struct {
	*jobShop
	reversed     bool
	predecessors [][]predecessor // by task
	bytes        []memoryChange  // by task, in the schedule's direction of time
	slots        [][]slot        // by rank
	ends         [][]int64       // by task and microbatch
}

// predecessor is a task that must end before another starts, with the lag between them.
type predecessor struct {
	task task
	lag  int64
}

// slot is the interval in which a placed task runs, with the peak of the rank's live bytes in it.
type slot struct {
	task       task
	start, end int64
	peak       int64
}

func newPartialSchedule(s *jobShop, reversed bool) *partialSchedule {
	p := &partialSchedule{
		jobShop: s, reversed: reversed, predecessors: make([][]predecessor, len(s.duration)), bytes: s.bytes,
		slots: make([][]slot, s.ranks), ends: make([][]int64, len(s.duration)),
	}
	precede := func(first, second task, lag int64) {
		if reversed {
			first, second = second, first
		}
		p.predecessors[second] = append(p.predecessors[second], predecessor{first, lag})
	}
	for i := range s.duration {
		t := task(i)
		p.ends[t] = make([]int64, s.microbatches)
		if successor := s.successor[t]; successor >= 0 {
			precede(t, successor, s.lag[t])
		}
		if t.part() == weight && s.split {
			precede(t-1, t, 0)
		}
	}
	if reversed {
		p.bytes = make([]memoryChange, len(s.bytes))
		for t, c := range s.bytes {
			p.bytes[t] = memoryChange{c.peak - c.net, -c.net}
		}
	}
	return p
}

// place sorts the jobs and places one after the other.
func (p *partialSchedule) place(jobs []job, limit int64) {
	slices.SortFunc(jobs, func(x, y job) int {
		if x.key != y.key {
			return cmp.Compare(x.key, y.key)
		}
		if p.reversed {
			x, y = y, x
		}
		return cmp.Or(cmp.Compare(x.mb, y.mb), cmp.Compare(p.routeIndex(x.task), p.routeIndex(y.task)))
	})
	for _, j := range jobs {
		ready := p.ready(j)
		rank := p.blocks[j.task.block()].rank
		slots := p.slots[rank]
		i := len(slots)
		for i > 0 && slots[i-1].end > ready {
			i--
		}
		for i < len(slots) && !p.fits(rank, i, j.task, ready, limit) {
			i++
		}
		p.insert(rank, i, j, ready)
	}
}

// routeIndex returns the position of a task in the sequence of tasks of a microbatch.
func (s *jobShop) routeIndex(t task) int {
	switch t.part() {
	case forward:
		return 2 * t.block()
	case backward:
		return 2 * (2*len(s.blocks) - t.block())
	}
	return 2*(2*len(s.blocks)-t.block()) + 1
}

// ready returns the earliest start of a job: after its predecessors, and after the same task of the
// preceding microbatch.
func (p *partialSchedule) ready(j job) (time int64) {
	for _, n := range p.predecessors[j.task] {
		time = max(time, p.ends[n.task][j.mb]+n.lag)
	}
	preceding := j.mb - 1
	if p.reversed {
		preceding = j.mb + 1
	}
	if preceding >= 0 && preceding < p.microbatches {
		time = max(time, p.ends[j.task][preceding])
	}
	return time
}

// fits reports whether a task can run before slot i of a rank.
func (p *partialSchedule) fits(rank, i int, t task, ready, limit int64) bool {
	slots := p.slots[rank]
	if i > 0 {
		ready = max(ready, slots[i-1].end)
	}
	if ready+p.duration[t] > slots[i].start || p.liveBefore(rank, i)+p.bytes[t].peak > limit {
		return false
	}
	if p.bytes[t].net > 0 {
		for _, later := range slots[i:] {
			if later.peak+p.bytes[t].net > limit {
				return false
			}
		}
	}
	return true
}

// liveBefore returns the bytes that are live on a rank before slot i.
func (p *partialSchedule) liveBefore(rank, i int) int64 {
	if i == 0 {
		return p.resident[rank]
	}
	before := p.slots[rank][i-1]
	return before.peak - p.bytes[before.task].peak + p.bytes[before.task].net
}

// insert places a job before slot i of a rank.
func (p *partialSchedule) insert(rank, i int, j job, ready int64) {
	if i > 0 {
		ready = max(ready, p.slots[rank][i-1].end)
	}
	end := ready + p.duration[j.task]
	p.ends[j.task][j.mb] = end
	bytes := p.bytes[j.task]
	p.slots[rank] = slices.Insert(p.slots[rank], i, slot{j.task, ready, end, p.liveBefore(rank, i) + bytes.peak})
	for k := i + 1; k < len(p.slots[rank]); k++ {
		p.slots[rank][k].peak += bytes.net
	}
}

// order returns the tasks of each rank in the order of their slots.
func (p *partialSchedule) order() order {
	o := make(order, p.ranks)
	for rank, slots := range p.slots {
		o[rank] = make([]task, len(slots))
		for i, s := range slots {
			o[rank][i] = s.task
		}
	}
	return o
}
