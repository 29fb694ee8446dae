package layout

import (
	"slices"

	"github.com/weir-ml/weir/memory"
)

// layout writes down where everything lies, place by place. The items of one group lie
// at one offset.
func (p *player) layout(segments []Segment, end int, group []int32, offsets []int64, height int64) *memory.Layout {
	l := &memory.Layout{
		Height: height, Births: make([]memory.Birth, 0, len(p.items)),
		Places: make([]int32, 0, end+2), Levels: make([]memory.Level, 0, end+1),
	}
	var live int64
	for v, visit := range p.visits {
		until := int32(len(p.log))
		if v+1 < len(p.visits) {
			until = p.visits[v+1].since
		}
		first := place(segments, end, visit.at) == len(l.Levels) // places are come to in order
		if first {
			l.Places = append(l.Places, int32(len(l.Births)))
		}
		level := memory.Level{Peak: live}
		for _, change := range p.log[visit.since:until] {
			if change < 0 {
				live -= p.items[^change].bytes
				continue
			}
			it := &p.items[change]
			if first {
				l.Births = append(l.Births, memory.Birth{Offset: offsets[group[change]], Bytes: it.bytes, Class: it.class, AtMost: it.atMost})
			}
			live += it.bytes
			level.Peak = max(level.Peak, live)
		}
		if level.Live = live; first {
			l.Levels = append(l.Levels, level)
		}
	}
	l.Places = append(l.Places, int32(len(l.Births)))
	return l
}

// inClasses writes down where everything lies of a program that lies in size classes. It was cut,
// and played for the first of the repeats of a cycle at least: the others are as that one.
func (a *attempt) inClasses() *memory.Layout {
	p, l := a.played, &memory.Layout{Height: a.laid.Height}
	rounds := make([]*steady, len(p.program)+1) // by segment
	for _, round := range a.rounds {
		rounds[round.segment] = round
	}
	var live int64
	for v, visit := range p.visits {
		at, round := visit.at, rounds[visit.at.segment]
		cycle := -1 // the repeat of the cycle
		if round != nil && int(at.repeat) < p.program[at.segment].Repeat-p.spans[at.segment].tail {
			cycle = int(at.repeat) - p.spans[at.segment].lead
		}
		level := memory.Level{Peak: live}
		if cycle <= 0 {
			l.Places = append(l.Places, int32(len(l.Births)))
		}
		for _, change := range p.changes(v) {
			if change < 0 {
				live -= p.items[^change].bytes
				continue
			}
			it := &p.items[change]
			if live += it.bytes; cycle <= 0 && !it.again {
				l.Births = append(l.Births, memory.Birth{Offset: a.laid.Offsets[change], Bytes: it.bytes, Class: it.class, AtMost: it.atMost})
			}
			level.Peak = max(level.Peak, live)
		}
		if level.Live = live; cycle <= 0 {
			l.Levels = append(l.Levels, level)
		}
		if cycle == 0 {
			if body := len(p.program[at.segment].Body); int(at.index) == body-1 {
				round.again(l, body, int(at.repeat))
			}
		}
	}
	l.Places = append(l.Places, int32(len(l.Births)))
	return l
}

// again writes down the repeats of a cycle behind the first one, which was the last that was
// written.
func (s *steady) again(l *memory.Layout, body, first int) {
	n := len(s.Buffers)
	births := l.Births[len(l.Births)-n:]
	places, levels := l.Places[len(l.Places)-body:], l.Levels[len(l.Levels)-body:]
	l.Births = slices.Grow(l.Births, n*(s.laid.Cycle-1))
	for k := 1; k < s.laid.Cycle; k++ {
		for _, place := range places {
			l.Places = append(l.Places, place+int32(k*n))
		}
		l.Levels = append(l.Levels, levels...)
		for i, b := range births {
			b.Offset = s.floor + s.offset(first+k, i)
			l.Births = append(l.Births, b)
		}
	}
}
