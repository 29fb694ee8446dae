package memreport

import (
	"fmt"
	"slices"

	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule/units"
	"github.com/weir-ml/weir/trainer/report"
)

// maxPanels is the maximum number of ranks with their own panel.
const maxPanels = 48

// Page returns the page of the log. name says where the log comes from.
func (l *Log) Page(name string) *report.Page {
	s := l.Summary()
	p := &report.Page{
		Title: "Memory, microbatch by microbatch",
		Subtitle: fmt.Sprintf("%s: %s, %s of %s, %s in %s", name, units.Number(len(s.Ranks), "rank"), units.Number(s.Steps, "step"),
			units.Number(s.Microbatches, "microbatch"), units.Number(s.Records, "record"), s.Form),
		Footer: "Made by weir mem. Bands and columns extend from the smallest to the largest of their records, so that no peak is lost although fewer points are drawn.",
	}
	l.AddTo(p, s)
	return p
}

// AddTo adds the facts, figures and tables of the log, whose summary is s, to a page.
func (l *Log) AddTo(p *report.Page, s *Summary) {
	if len(s.Ranks) == 0 {
		return
	}
	summary := s.focus() // the rank of the large figures
	focus := l.ranks[summary.Rank]
	p.Facts = append(p.Facts, facts(s, summary)...)
	p.Figures = append(p.Figures, focus.memoryFigure(summary))
	if focus.minimal < focus.totals.Records {
		p.Figures = append(p.Figures, focus.classesFigure())
	}
	p.Figures = append(p.Figures, focus.stepFigure(summary), focus.stepsFigure(summary), focus.reservedFigure())
	if len(s.Ranks) > 1 {
		p.Figures = append(p.Figures, ranksFigure(s))
		p.Panels = append(p.Panels, l.panels(s))
	}
	p.Tables = append(p.Tables, tables(s, summary)...)
}

// facts returns the numbers at the top of the page.
func facts(s *Summary, focus *RankSummary) []report.Fact {
	growth := report.Fact{
		Label: "growth per microbatch", Value: focus.Growth.cell(), Good: !focus.Growth.Grows() && !focus.Growth.Unclear, Bad: focus.Growth.Grows(),
		Note: "on every rank, over " + units.Number(s.Records, "record"),
	}
	list := []report.Fact{growth}
	if g := &focus.Growth; g.Grows() {
		list[0].Note = fmt.Sprintf("rank %d, by the %s", focus.Rank, g.From)
		if g.Class != "" {
			list[0].Note += ", most of it of class " + g.Class
		}
		list = append(list, report.Fact{Label: "begins", Value: g.First.cell(), Note: g.remainder(focus.Steps), Bad: true})
	}
	peak := report.Fact{Label: "peak", Value: units.Size(focus.Peak), Note: fmt.Sprintf("%s bytes, rank %d at step %d, microbatch %d", units.Count(focus.Peak), focus.Rank, focus.PeakAt.Step, focus.PeakAt.Microbatch)}
	list = append(list, peak)
	if p := focus.Planned; p != nil {
		one := report.Fact{Label: "planned peak", Value: units.Size(p.Peak), Note: "the measured peak is equal, to the byte", Good: true}
		switch d := focus.Peak - p.Peak; {
		case d > 0:
			one.Note, one.Good, one.Bad = fmt.Sprintf("the measured peak is %s bytes higher", units.Count(d)), false, true
		case d < 0:
			one.Note, one.Good = fmt.Sprintf("the measured peak is %s bytes lower", units.Count(-d)), false
		}
		list = append(list, one)
	}
	if focus.FarPeak > 0 {
		one := report.Fact{Label: "far peak", Value: units.Size(focus.FarPeak), Note: "in far memory, without a plan"}
		if focus.FarPlanned > 0 {
			one.Note, one.Good = "in far memory; planned "+units.Exactly(focus.FarPlanned), focus.FarPeak == focus.FarPlanned
		}
		list = append(list, one)
	}
	return append(list,
		report.Fact{Label: "reserved", Value: units.Size(focus.Reserved), Note: "at most, with " + percent(focus.Peak, focus.Reserved) + " in use at the peak"},
		report.Fact{Label: "level", Value: units.Size(focus.LevelLast), Note: "live after the last microbatch; " + sizeRange(focus.LevelLowest, focus.LevelHighest) + " over the log"},
	)
}

func percent(part, whole int64) string {
	if whole <= 0 {
		return "-"
	}
	return units.Percent(float64(part)/float64(whole), 1)
}

// cell describes where growth begins, for a cell of a table.
func (f *First) cell() string {
	if f.LastStep > f.Step {
		return fmt.Sprintf("step %d to %d", f.Step, f.LastStep)
	}
	return fmt.Sprintf("step %d, mb %d", f.Step, f.Microbatch)
}

// remainder describes how much of its growth a step releases.
func (g *Growth) remainder(steps int64) string {
	switch {
	case g.PerStep != 0:
		return "each step leaves " + size(g.PerStep)
	case steps == 1:
		return "in the only step of the log"
	case steps < minPoints:
		return "of a step; too few steps to tell how much each leaves"
	}
	return "of a step, which releases all of it"
}

// tables returns the numbers behind the figures.
func tables(s *Summary, focus *RankSummary) (list []report.Table) {
	for _, t := range []report.Table{firstRows(s.dumpTable(), shownOwners*4), firstRows(peakTable(focus), shownOwners*2), classesTable(focus), s.fp8Table()} {
		if len(t.Rows) > 0 {
			list = append(list, t)
		}
	}
	return append(list, s.rankTable("rank", "records", "level", "peak", "planned peak", "reserved", "growth per microbatch", "begins", "far peak", "replica"))
}

// classesTable returns a table of a rank's classes at its peak, if the log has them, and at its
// highest level after a microbatch.
func classesTable(r *RankSummary) report.Table {
	t := report.Table{
		Title: fmt.Sprintf("By class, rank %d", r.Rank),
		Head:  []string{"class", "at the peak", "at the highest level after a microbatch"},
	}
	first, most := r.PeakClasses, r.Peak
	if len(first) == 0 {
		t.Head = slices.Delete(t.Head, 1, 2)
		first, most = r.Classes, r.LevelHighest
	}
	for class := range memory.NumClasses {
		name := memory.Class(class).String()
		if first[name] == 0 && r.Classes[name] == 0 {
			continue
		}
		row := []string{name, units.Exactly(first[name])}
		if len(r.PeakClasses) > 0 {
			row = append(row, units.Exactly(r.Classes[name]))
		}
		t.Rows = append(t.Rows, row)
		t.Shares = append(t.Shares, float64(first[name])/float64(max(most, 1)))
	}
	return t
}
