package memreport

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule/units"
	"github.com/weir-ml/weir/trainer/report"
)

// bytesFromZero is the vertical axis of every figure.
var bytesFromZero = report.Axis{Unit: report.Bytes, FromZero: true}

// series returns the series of a quantity, relative to base. It covers those columns of the rank
// in which every record has the quantity.
func (r *rankTotals) series(name string, mark report.Mark, color report.Color, q quantity, base int64) report.Series {
	s := report.Series{Name: name, Mark: mark, Color: color}
	for i := range r.columns.list {
		c := &r.columns.list[i]
		if of := &c.spans[q]; of.Count == c.count() {
			s.Buckets = append(s.Buckets, of.Minus(float64(base)))
		}
	}
	return s
}

// tooltip describes the records of column i, if it exists.
func (r *rankTotals) tooltip(i int) string {
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

// axis returns the axis of a rank's records.
func (r *rankTotals) axis() report.Axis {
	return report.Axis{Label: "microbatches since the log began", Unit: report.Count, Tooltip: r.tooltip}
}

// columnNote states how many records a column summarizes, if there are several.
func (r *rankTotals) columnNote() string {
	if r.columns.stride > 1 {
		return fmt.Sprintf(" Each column is %d microbatches.", r.columns.stride)
	}
	return ""
}

// memoryFigure plots the live and planned bytes of the steps.
func (r *rankTotals) memoryFigure(s *RankSummary) report.Figure {
	base, name := r.totals.LevelLowest, "the lowest level, "+units.Size(r.totals.LevelLowest)
	if r.resident > 0 {
		base, name = r.resident, "the "+units.Size(r.resident)+" of the model"
	}
	f := report.Figure{
		Title:   fmt.Sprintf("The memory of the steps, rank %d", r.totals.Rank),
		Caption: "Live bytes after each microbatch, and their maximum since the one before (peak), above " + name + "." + r.columnNote(),
		X:       r.axis(), Y: bytesFromZero, Direct: true,
		Series: []report.Series{
			r.series("", report.Band, report.Orange, peak, base), r.series("", report.Band, report.Blue, live, base),
			r.series("peak", report.Line, report.Orange, peak, base), r.series("live", report.Line, report.Blue, live, base),
		},
	}
	if r.totals.Planned != nil {
		f.Caption += " Dashed lines: the plan."
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

// reservedFigure plots the bytes held from the system.
func (r *rankTotals) reservedFigure() report.Figure {
	return report.Figure{
		Title: fmt.Sprintf("Reserved, rank %d", r.totals.Rank), Caption: "Bytes held from the system." + r.columnNote(),
		X: r.axis(), Y: bytesFromZero, Direct: true, Low: true,
		Series: []report.Series{r.series("reserved", report.Line, report.Gray, reserved, 0)},
	}
}

// classesFigure plots the level by class.
func (r *rankTotals) classesFigure() report.Figure {
	list := r.columns.list
	return report.Figure{
		Title:   fmt.Sprintf("Live after a microbatch, rank %d", r.totals.Rank),
		Caption: "By class, stacked, without resident bytes." + r.columnNote(),
		X:       r.axis(), Y: bytesFromZero, Direct: true,
		Series: report.ByClass(report.Area, len(list), func(i int, class memory.Class) report.Bucket {
			b := report.Point(0, list[i].Classes[class]/float64(list[i].count()))
			b.First, b.Last = float64(list[i].First.Record), float64(list[i].Last.Record)
			return b
		}),
	}
}

// meanAndBand plots the means of buckets over a band from minimum to maximum.
func meanAndBand(name string, list []report.Bucket) []report.Series {
	return []report.Series{{Mark: report.Band, Color: report.Blue, Buckets: list}, {Name: name, Mark: report.Line, Color: report.Blue, Buckets: list}}
}

// riseLine returns a dashed line that starts at a position and runs through the middle of the
// plotted points.
func riseLine(name string, perPosition float64, from float64, list []report.Bucket) report.Series {
	s := report.Series{Name: name, Mark: report.Dash, Color: report.Red}
	if len(list) == 0 {
		return s
	}
	var above []float64 // the points minus a line from 0
	x, y := points(list, len(list))
	for i := range x {
		if x[i] >= from {
			above = append(above, y[i]-perPosition*(x[i]-from))
		}
	}
	slices.Sort(above)
	level, end, lowest := 0.0, x[len(x)-1], list[0].Min
	if len(above) > 0 {
		level = above[len(above)/2]
	}
	for _, b := range list {
		lowest = min(lowest, b.Min)
	}
	s.Buckets = []report.Bucket{
		report.Point(from, max(level, lowest)), // do not extend the plot downwards for small differences
		report.Point(end, level+perPosition*(end-from)),
	}
	return s
}

// tooShort is the caption of a rise that chance may explain.
const tooShort = " The log is too short to tell whether it grows."

// stepFigure plots the growth within a step, from microbatch to microbatch.
func (r *rankTotals) stepFigure(s *RankSummary) report.Figure {
	g := &s.Growth
	f := report.Figure{
		Title: fmt.Sprintf("Within a step, rank %d", r.totals.Rank), Direct: true,
		Caption: "The level relative to the first record of the step, by position in the step.",
		X:       report.Axis{Label: "microbatch of the step, in the order of the log", Unit: report.Count},
		Y:       bytesFromZero,
	}
	if g.late != nil {
		return r.lateFigure(f, g)
	}
	of, name := &r.stepProfile, "level"
	if g.From == "books" {
		of, name = &r.excess, "excess"
		f.Caption = "Bytes in the allocator's book that the step does not hold, by position in the step."
	}
	if r.totals.Steps > 1 {
		f.Caption += fmt.Sprintf(" The line is the mean of %s, the band extends from the smallest to the largest.", units.Number(r.totals.Steps, "step"))
	}
	list := chunked(of.list, maxColumns)
	if len(list) < 2 {
		return f // no growth within a step
	}
	f.Series = meanAndBand(name, list)
	if g.PerMicrobatch == 0 {
		f.Caption += " It does not grow."
		f.Low = true
		return f
	}
	f.Series = append(f.Series, g.line(list))
	if g.Unclear {
		f.Caption += tooShort
	}
	if g.First != nil && g.First.position >= 0 {
		f.Notes = []report.Note{{X: float64(g.First.position), Text: "first at microbatch " + strconv.Itoa(g.First.Microbatch)}}
	}
	return f
}

// lateFigure plots both the steps that grow and the steps before them.
func (r *rankTotals) lateFigure(f report.Figure, g *Growth) report.Figure {
	f.Caption += " The lines are means."
	before, after := g.late.before, g.late.after
	f.Series = []report.Series{
		{Name: "earlier steps", Mark: report.Line, Color: report.Gray, Buckets: before},
		{Name: fmt.Sprintf("from step %d on", g.First.Step), Mark: report.Line, Color: report.Blue, Buckets: after},
		g.line(after),
	}
	return f
}

// line plots the growth within a step, from the first position if the start of the growth is unknown.
func (g *Growth) line(list []report.Bucket) report.Series {
	from := 0.0
	if g.First != nil {
		from = float64(max(g.First.position-1, 0))
	}
	return riseLine(size(g.PerMicrobatch)+" each", g.perPosition, from, list)
}

// stepsFigure plots the level after each step.
func (r *rankTotals) stepsFigure(s *RankSummary) report.Figure {
	g := &s.Growth
	f := report.Figure{
		Title: fmt.Sprintf("From step to step, rank %d", r.totals.Rank), Direct: true,
		Caption: "The lowest level of each step, relative to the first step.",
		X:       report.Axis{Label: "steps since the log began", Unit: report.Count},
		Y:       bytesFromZero,
	}
	list := chunked(r.lowest(), maxColumns)
	for i := range list {
		list[i] = list[i].Minus(float64(r.firstLowest))
	}
	if len(list) < 2 {
		return f
	}
	f.Series = meanAndBand("lowest level", list)
	switch {
	case g.PerStep != 0:
		if g.Unclear {
			f.Caption += tooShort
		}
		f.Series = append(f.Series, riseLine(size(g.PerStep)+" a step", g.PerStep, float64(max(g.leaves-1, 0)), list))
		return f
	case r.totals.Steps < minPoints:
		f.Caption += " These are too few to tell whether it grows."
	default:
		f.Caption += " It does not grow."
	}
	f.Low = true
	return f
}

// ranksFigure plots the ranks side by side.
func ranksFigure(s *Summary) report.Figure {
	f := report.Figure{
		Title:   "Ranks",
		Caption: "Bars: the highest level after a microbatch. Lines: the peak, what was planned, and what was reserved.",
		X:       report.Axis{Label: "rank"}, Y: bytesFromZero,
	}
	plot := func(name string, mark report.Mark, color report.Color, of func(r *RankSummary) (bytes int64, known bool)) {
		one := report.Series{Name: name, Mark: mark, Color: color}
		for i := range s.Ranks {
			if bytes, known := of(&s.Ranks[i]); known {
				one.Buckets = append(one.Buckets, report.Point(float64(i), float64(bytes)))
			}
		}
		if len(one.Buckets) > 0 {
			f.Series = append(f.Series, one)
		}
	}
	for class := range memory.Class(memory.NumClasses) {
		name := class.String()
		if slices.ContainsFunc(s.Ranks, func(r RankSummary) bool { return r.Classes[name] > 0 }) {
			plot(name, report.Bars, report.ClassColor(class), func(r *RankSummary) (int64, bool) { return r.Classes[name], true })
		}
	}
	if f.Series == nil { // the log has no classes
		plot("live", report.Bars, report.Blue, func(r *RankSummary) (int64, bool) { return r.LevelHighest, true })
	}
	plot("reserved", report.Ticks, report.Gray, func(r *RankSummary) (int64, bool) { return r.Reserved, true })
	plot("peak", report.Ticks, report.Orange, func(r *RankSummary) (int64, bool) { return r.Peak, true })
	plot("peak, planned", report.Ticks, report.Violet, func(r *RankSummary) (int64, bool) {
		if r.Planned == nil {
			return 0, false
		}
		return r.Planned.Peak, true
	})
	if len(s.Ranks) <= maxPanels { // there is room
		for _, r := range s.Ranks {
			f.X.Names = append(f.X.Names, strconv.Itoa(r.Rank))
		}
	}
	return f
}

// panels plots each of the first maxPanels ranks, all on one scale.
func (l *Log) panels(s *Summary) report.Panels {
	p := report.Panels{
		Title:   "Every rank",
		Caption: "Live bytes and their peak over the microbatches of the log, on one scale.",
	}
	if s.planned() {
		p.Caption = "Live bytes, their peak and the planned peak over the microbatches of the log, on one scale."
	}
	most := int64(0)
	for i := range s.Ranks {
		most = max(most, s.Ranks[i].Peak)
	}
	if n := len(s.Ranks); n > maxPanels {
		p.Caption += fmt.Sprintf(" The first %d of %d ranks.", maxPanels, n)
	}
	for i := range s.Ranks[:min(len(s.Ranks), maxPanels)] {
		one := &s.Ranks[i]
		r := l.ranks[one.Rank]
		f := report.Figure{
			Title: "rank " + strconv.Itoa(one.Rank), Caption: "peak " + units.Size(one.Peak),
			X: report.Axis{Unit: report.Count}, Y: report.Axis{Unit: report.Bytes, FromZero: true, Reach: float64(most)},
			Series: []report.Series{
				r.series("", report.Band, report.Orange, peak, 0), r.series("peak", report.Line, report.Orange, peak, 0), r.series("live", report.Line, report.Blue, live, 0),
			},
		}
		if one.Growth.Grows() {
			f.Caption += ", grows by " + one.Growth.cell()
		}
		if r.totals.Planned != nil {
			f.Series = append(f.Series, r.series("planned", report.Dash, report.Violet, peakPlanned, 0))
		}
		p.Figures = append(p.Figures, f)
	}
	return p
}
