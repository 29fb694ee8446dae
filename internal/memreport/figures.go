package memreport

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/trainer/report"
	"github.com/weir-ml/weir/trainer/units"
)

// bucket returns what a plot draws of a column.
func (c *column) bucket(low, high, sum float64) report.Bucket {
	return report.Bucket{First: float64(c.First.Record), Last: float64(c.Last.Record), Min: low, Max: high, Sum: sum, Count: c.count()}
}

// series returns a series over the columns of a rank in which every record says what it
// plots, above a base.
func (r *rank) series(name string, mark report.Mark, color report.Color, q quantity, base int64) report.Series {
	s := report.Series{Name: name, Mark: mark, Color: color}
	for i := range r.columns.list {
		c := &r.columns.list[i]
		if of := &c.spans[q]; of.Count == c.count() {
			s.Buckets = append(s.Buckets, c.bucket(float64(of.Min), float64(of.Max), of.Sum).Minus(float64(base)))
		}
	}
	return s
}

// say says which records column i stands for.
func (r *rank) say(i int) string {
	if i >= len(r.columns.list) {
		return ""
	}
	c := &r.columns.list[i]
	text := fmt.Sprintf("step %d, microbatch %d", c.First.Step, c.First.Microbatch)
	if c.count() > 1 {
		text += fmt.Sprintf(" to step %d, microbatch %d", c.Last.Step, c.Last.Microbatch)
	}
	return text
}

// axis is that of the records of a rank.
func (r *rank) axis() report.Axis {
	return report.Axis{Label: "microbatches since the log began", Unit: report.Count, Say: r.say}
}

// many says how many records a column stands for where it is more than one.
func (r *rank) many() string {
	if r.columns.stride > 1 {
		return fmt.Sprintf(" A column stands for %d microbatches.", r.columns.stride)
	}
	return ""
}

// base returns what is there throughout, and its name: what is resident, where the log
// says it, and else the lowest level.
func (r *rank) base() (bytes int64, name string) {
	if r.resident > 0 {
		return r.resident, "beside the " + units.Size(r.resident) + " of the model, which stay"
	}
	return r.lowestLevel, "above the lowest level, " + units.Size(r.lowestLevel)
}

// memoryFigure plots what the steps had live, beside the plan.
func (r *rank) memoryFigure(s *Rank) report.Figure {
	base, name := r.base()
	f := report.Figure{
		Title:   fmt.Sprintf("The memory of the steps, rank %d", r.number),
		Caption: "Live after each microbatch, and the most since the one before (peak), " + name + "." + r.many(),
		X:       r.axis(), Y: report.Axis{Unit: report.Bytes, FromZero: true}, Direct: true,
		Series: []report.Series{
			r.series("", report.Band, report.Orange, peak, base), r.series("", report.Band, report.Blue, live, base),
			r.series("peak", report.Line, report.Orange, peak, base), r.series("live", report.Line, report.Blue, live, base),
		},
	}
	if r.planned > 0 {
		f.Caption += " Dashed: what the plan says."
		f.Series = append(f.Series,
			r.series("peak, planned", report.Dash, report.Violet, peakPlanned, base),
			r.series("live, planned", report.Dash, report.Aqua, livePlanned, base))
	}
	if g := &s.Growth; g.Grows() {
		for i := range r.columns.list {
			if c := &r.columns.list[i]; c.Last.Step > g.First.Step || c.Last.Step == g.First.Step && c.Last.Microbatch >= g.First.Microbatch {
				f.Notes = []report.Note{{X: float64(c.First.Record), Text: "grows from here"}}
				break
			}
		}
	}
	return f
}

// reservedFigure plots what is held from the system.
func (r *rank) reservedFigure() report.Figure {
	return report.Figure{
		Title: fmt.Sprintf("Reserved, rank %d", r.number), Caption: "What is held from the system." + r.many(),
		X: r.axis(), Y: report.Axis{Unit: report.Bytes, FromZero: true}, Direct: true, Low: true,
		Series: []report.Series{r.series("reserved", report.Line, report.Gray, reserved, 0)},
	}
}

// classesFigure plots the level by class.
func (r *rank) classesFigure() report.Figure {
	f := report.Figure{
		Title:   fmt.Sprintf("What is live after a microbatch, rank %d", r.number),
		Caption: "By class, one on top of the other, beside what is resident." + r.many(),
		X:       r.axis(), Y: report.Axis{Unit: report.Bytes, FromZero: true}, Direct: true,
	}
	for class := range memory.NumClasses {
		if memory.Class(class) == memory.Resident {
			continue
		}
		most := 0.0
		s := report.Series{Name: memory.Class(class).String(), Mark: report.Area, Color: report.ClassColor(memory.Class(class))}
		for i := range r.columns.list {
			c := &r.columns.list[i]
			mean := c.Classes[class] / float64(c.count())
			b := c.bucket(mean, mean, c.Classes[class])
			most = max(most, b.Mean())
			s.Buckets = append(s.Buckets, b)
		}
		if most > 0 {
			f.Series = append(f.Series, s)
		}
	}
	return f
}

// buckets returns the cells of a profile for a plot, no more than columns.
func (p *profile) buckets() (list []report.Bucket) {
	each := (len(p.cells) + mostColumns - 1) / mostColumns
	for from := 0; from < len(p.cells); from += each {
		var c cell
		for _, next := range p.cells[from:min(from+each, len(p.cells))] {
			c.join(next)
		}
		list = append(list, report.Bucket{First: float64(c.first), Last: float64(c.last), Min: c.min, Max: c.max, Sum: c.sum, Count: int(c.count)})
	}
	return list
}

// riseLine is a dashed line from a position on, in the middle of what is plotted there.
func riseLine(name string, perPosition float64, from float64, list []report.Bucket) report.Series {
	s := report.Series{Name: name, Mark: report.Dash, Color: report.Red}
	if len(list) == 0 {
		return s
	}
	last := list[len(list)-1]
	end := (last.First + last.Last) / 2
	point := func(x, y float64) {
		s.Buckets = append(s.Buckets, report.Point(x, y))
	}
	var above []float64 // the points minus a line from 0
	lowest := list[0].Min
	for _, b := range list {
		lowest = min(lowest, b.Min)
		if x := (b.First + b.Last) / 2; x >= from {
			above = append(above, b.Mean()-perPosition*(x-from))
		}
	}
	slices.Sort(above)
	level := 0.0
	if len(above) > 0 {
		level = above[len(above)/2]
	}
	point(from, max(level, lowest)) // what is a little below everything is no news
	point(end, level+perPosition*(end-from))
	return s
}

// stepFigure plots what a step adds from microbatch to microbatch.
func (r *rank) stepFigure(s *Rank) report.Figure {
	g := &s.Growth
	f := report.Figure{
		Title: fmt.Sprintf("Within a step, rank %d", r.number), Direct: true,
		Caption: "The level above that of the step's first record, by the place of a record in its step.",
		X:       report.Axis{Label: "microbatch of the step, in the order of the log", Unit: report.Count},
		Y:       report.Axis{Unit: report.Bytes, FromZero: true},
	}
	if g.late > 0 {
		return r.lateFigure(f, g)
	}
	of, name := &r.within, "level"
	if g.From == "books" {
		of, name = &r.excess, "excess"
		f.Caption = "What the allocator's book has and the step does not hold, by the place of a record in its step."
	}
	if r.steps > 1 {
		f.Caption += fmt.Sprintf(" The line is the mean of %s, the band reaches from the smallest to the largest.", units.Number(r.steps, "step"))
	}
	list := of.buckets()
	if len(list) < 2 {
		return f // nothing to see within a step
	}
	f.Series = []report.Series{{Mark: report.Band, Color: report.Blue, Buckets: list}, {Name: name, Mark: report.Line, Color: report.Blue, Buckets: list}}
	switch {
	case g.PerMicrobatch != 0:
		f.Series = append(f.Series, riseLine(size(g.PerMicrobatch)+" each", g.PerMicrobatch, float64(max(g.First.position-1, 0)), list))
		if g.First.position >= 0 {
			f.Notes = []report.Note{{X: float64(g.First.position), Text: "first at microbatch " + strconv.Itoa(g.First.Microbatch)}}
		}
	default:
		f.Caption += " It does not grow."
		f.Low = true
	}
	return f
}

// lateFigure shows the steps that grow beside those before them.
func (r *rank) lateFigure(f report.Figure, g *Growth) report.Figure {
	f.Caption += " The lines are means."
	line := func(name string, color report.Color, from, to int) {
		s := report.Series{Name: name, Mark: report.Line, Color: color}
		x, y := r.grid.above(r.grid.mean(from, to), nil)
		for i := range x {
			s.Buckets = append(s.Buckets, report.Point(x[i], y[i]))
		}
		f.Series = append(f.Series, s)
	}
	line("earlier steps", report.Gray, 0, g.late)
	line(fmt.Sprintf("from step %d on", g.First.Step), report.Blue, g.late, len(r.grid.rows))
	f.Series = append(f.Series, riseLine(size(g.PerMicrobatch)+" each", g.PerMicrobatch, float64(max(g.First.position-1, 0)), f.Series[1].Buckets))
	return f
}

// stepsFigure plots what is left of each step.
func (r *rank) stepsFigure(s *Rank) report.Figure {
	g := &s.Growth
	f := report.Figure{
		Title: fmt.Sprintf("From step to step, rank %d", r.number), Direct: true,
		Caption: "The lowest level of each step, above that of the first.",
		X:       report.Axis{Label: "steps since the log began", Unit: report.Count},
		Y:       report.Axis{Unit: report.Bytes, FromZero: true},
	}
	all := profile{cells: append([]cell(nil), r.lows.cells...), stride: r.lows.stride}
	all.add(r.steps-1, float64(r.stepLowest))
	for i := range all.cells {
		all.cells[i].lower(float64(r.firstLowest))
	}
	list := all.buckets()
	if len(list) < 2 {
		return f
	}
	f.Series = []report.Series{{Mark: report.Band, Color: report.Blue, Buckets: list}, {Name: "lowest level", Mark: report.Line, Color: report.Blue, Buckets: list}}
	switch {
	case g.PerStep != 0:
		f.Series = append(f.Series, riseLine(size(g.PerStep)+" a step", g.PerStep, float64(max(g.leaves-1, 0)), list))
		return f
	case r.steps < leastPoints:
		f.Caption += " These are too few to say whether it grows."
	default:
		f.Caption += " It does not grow."
	}
	f.Low = true
	return f
}

// ranksFigure plots the ranks beside each other.
func ranksFigure(s *Summary) report.Figure {
	f := report.Figure{
		Title:   "Ranks",
		Caption: "Bars: the highest level after a microbatch. Lines: the peak, what was planned, and what was reserved.",
		X:       report.Axis{Label: "rank"}, Y: report.Axis{Unit: report.Bytes, FromZero: true},
	}
	bars := map[string]*report.Series{}
	level := report.Series{Name: "live", Mark: report.Bars, Color: report.Blue}
	ticks := [3]report.Series{
		{Name: "reserved", Mark: report.Ticks, Color: report.Gray}, {Name: "peak", Mark: report.Ticks, Color: report.Orange},
		{Name: "peak, planned", Mark: report.Ticks, Color: report.Violet},
	}
	classed := false
	for i := range s.Ranks {
		classed = classed || s.Ranks[i].Classes != nil
	}
	for i := range s.Ranks {
		r := &s.Ranks[i]
		f.X.Names = append(f.X.Names, strconv.Itoa(r.Rank))
		level.Buckets = append(level.Buckets, report.Point(float64(i), float64(r.LevelHighest)))
		for class := range memory.NumClasses {
			name := memory.Class(class).String()
			if bars[name] == nil {
				bars[name] = &report.Series{Name: name, Mark: report.Bars, Color: report.ClassColor(memory.Class(class))}
			}
			bars[name].Buckets = append(bars[name].Buckets, report.Point(float64(i), float64(r.Classes[name])))
		}
		ticks[0].Buckets = append(ticks[0].Buckets, report.Point(float64(i), float64(r.Reserved)))
		ticks[1].Buckets = append(ticks[1].Buckets, report.Point(float64(i), float64(r.Peak)))
		if r.Planned != nil {
			ticks[2].Buckets = append(ticks[2].Buckets, report.Point(float64(i), float64(r.Planned.Peak)))
		}
	}
	if len(s.Ranks) > mostPanels {
		f.X.Names = nil // no room
	}
	if !classed {
		f.Series = append(f.Series, level)
	} else {
		for class := range memory.NumClasses {
			one := bars[memory.Class(class).String()]
			for _, b := range one.Buckets {
				if b.Max > 0 {
					f.Series = append(f.Series, *one)
					break
				}
			}
		}
	}
	for _, one := range ticks {
		if len(one.Buckets) > 0 {
			f.Series = append(f.Series, one)
		}
	}
	return f
}

// panels are the ranks one by one, on one scale.
func (l *Log) panels(s *Summary) report.Panels {
	p := report.Panels{
		Title:   "Every rank",
		Caption: "Live (blue) and peak (orange) over the microbatches of the log, on one scale.",
	}
	if l.planned > 0 {
		p.Caption = "Live (blue), peak (orange) and the planned peak (dashed) over the microbatches of the log, on one scale."
	}
	most := int64(0)
	for i := range s.Ranks {
		most = max(most, s.Ranks[i].Peak)
	}
	if n := len(s.Ranks); n > mostPanels {
		p.Caption += fmt.Sprintf(" The first %d of %d ranks.", mostPanels, n)
	}
	for i := range s.Ranks[:min(len(s.Ranks), mostPanels)] {
		one := &s.Ranks[i]
		r := l.ranks[one.Rank]
		f := report.Figure{
			Title: "rank " + strconv.Itoa(one.Rank), Caption: "peak " + units.Size(one.Peak),
			X: report.Axis{Unit: report.Count}, Y: report.Axis{Unit: report.Bytes, FromZero: true, Reach: float64(most)},
			Series: []report.Series{
				r.series("peak", report.Band, report.Orange, peak, 0), r.series("peak", report.Line, report.Orange, peak, 0), r.series("live", report.Line, report.Blue, live, 0),
			},
		}
		if one.Growth.Grows() {
			f.Caption += ", grows by " + one.Growth.short()
		}
		if r.planned > 0 {
			f.Series = append(f.Series, r.series("planned", report.Dash, report.Violet, peakPlanned, 0))
		}
		p.Figures = append(p.Figures, f)
	}
	return p
}
