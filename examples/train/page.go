package main

import (
	"fmt"
	"strconv"

	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/trainer/report"
	"github.com/weir-ml/weir/trainer/units"
)

// page returns the page of the run.
func (t *training) page(s *summary) *report.Page {
	r := t.record
	p := &report.Page{
		Title:    "A Weir training run",
		Subtitle: t.data.Name + ": " + t.opts.describe(),
		Figures:  []report.Figure{t.memoryFigure(), t.actionsFigure(), r.lossFigure(s.LossFrequencies)},
		Tables:   []report.Table{t.lossTable(), t.settings(s)},
		Footer:   "The memory log is in memory.jsonl and the losses are in losses.csv, beside this page.",
	}
	growth := report.Fact{
		Label: "growth per microbatch", Value: units.Count(s.Growth) + " bytes",
		Note: "over " + units.Count(s.GrowthOver) + " microbatches", Good: s.Growth == 0, Bad: s.Growth != 0,
	}
	fullest := ""
	if s.Ranks > 1 {
		fullest = " on the rank that has most"
	}
	p.Facts = []report.Fact{
		growth,
		{Label: "peak", Value: units.Size(s.PeakBytes), Note: units.Count(s.PeakBytes) + " bytes" + fullest},
		{Label: "live after a step", Value: units.Size(s.LiveBytes), Note: units.Count(s.LiveBytes) + " bytes" + fullest + ", the model is " + units.Size(s.ModelBytes)},
		{Label: "held-out loss", Value: lossText(s.LossHeldout), Note: "nats per byte" + standardText(s.LossHeldoutStandard)},
		{Label: "train loss", Value: lossText(s.LossTrain), Note: "of the last step, from " + lossText(s.LossTrainFirst)},
		{Label: "speed", Value: units.Count(int64(s.TokensPerSecond)), Note: "tokens a second"},
		{Label: "allocations per step", Value: units.Count(int64(s.Allocations)), Note: "on the Go heap, however many microbatches"},
		{Label: "steps", Value: strconv.Itoa(s.Steps), Note: stepsNote(s)},
	}
	if s.FP8Roles != nil {
		p.Tables = append([]report.Table{s.fp8Table()}, p.Tables...)
	}
	if s.Ranks > 1 {
		p.Facts = append(p.Facts, report.Fact{
			Label: "bubble", Value: units.Percent(s.BubbleMakespan), Note: "of a makespan of " + units.Seconds(s.MakespanSeconds) + s.beside(),
		})
		p.Tables = append([]report.Table{s.rankTable()}, p.Tables...)
	}
	return p
}

// fullest returns the rank that had most alive, and on several ranks says so.
func (t *training) fullest() (r *rankRecord, words string) {
	rank := t.trainer.fullest()
	if t.opts.ranks > 1 {
		words = fmt.Sprintf(" This is rank %d, which had most.", rank)
	}
	return &t.record.ranks[rank], words
}

func stepsNote(s *summary) string {
	note := "of " + units.Count(int64(s.Microbatches)) + " microbatches"
	if s.Interrupted {
		note += ", interrupted"
	}
	return note
}

func lossText(x *float64) string {
	if x == nil {
		return "-"
	}
	return strconv.FormatFloat(*x, 'f', 3, 64)
}

func standardText(x *float64) string {
	if x == nil {
		return ""
	}
	return fmt.Sprintf(", ± %.3f", *x)
}

// memoryFigure plots live and peak over the microbatches of the run.
func (t *training) memoryFigure() report.Figure {
	r, words := t.fullest()
	caption := "What is alive after the last action of each microbatch, and the most that was alive since the one before." + words
	if n := r.peaks.Stride(); n > 1 {
		caption += fmt.Sprintf(" One column is %d microbatches; bands reach from the smallest to the largest of them.", n)
	}
	return report.Figure{
		Title: "Memory, microbatch by microbatch", Caption: caption,
		X: report.Axis{Label: "microbatch", Unit: report.Count},
		Y: report.Axis{Label: "memory", Unit: report.Bytes, FromZero: true},
		Series: []report.Series{
			{Name: "peak", Mark: report.Band, Color: report.Orange, Buckets: r.peaks.Buckets()},
			{Name: "live", Mark: report.Line, Color: report.Blue, Buckets: r.live.Buckets()},
		},
	}
}

// classColors are the colours of the classes that a run can have, but for what is
// resident, which never changes.
var classColors = []struct {
	class memory.Class
	color report.Color
}{
	{memory.Entry, report.Yellow}, {memory.Saved, report.Aqua},
	{memory.Activation, report.Orange}, {memory.ActGrad, report.Violet}, {memory.Carry, report.Green},
	{memory.Transfer, report.Magenta}, {memory.Workspace, report.Red}, {memory.FP8, report.Cyan},
}

// actionsFigure plots what is live at every one of the last actions, by class.
func (t *training) actionsFigure() report.Figure {
	r, words := t.fullest()
	f := report.Figure{
		Title: "Inside the last microbatches",
		X:     report.Axis{Label: "action", Unit: report.Count},
		Y:     report.Axis{Label: "memory", Unit: report.Bytes, FromZero: true},
	}
	actions := r.lastFew()
	if len(actions) > 0 {
		backwards := "B"
		if t.opts.schedule.Split {
			backwards = "I and W"
		}
		f.Caption = "What is alive when each action begins, by class, beside the model itself (" +
			units.Size(actions[0].classes[memory.Resident]) + "). Forwards (F) save for the backwards (" + backwards + ") of the same " +
			"microbatch, which let go of all of it. The number is the stage." + words
	}
	for _, a := range actions {
		f.X.Names = append(f.X.Names, a.action.Kind().String()+strconv.Itoa(a.action.Stage()))
		f.X.Groups = append(f.X.Groups, "microbatch "+strconv.Itoa(a.action.Microbatch()))
	}
	for _, c := range classColors {
		series := report.Series{Name: c.class.String(), Mark: report.Bars, Color: c.color}
		most := int64(0)
		for i, a := range actions {
			bytes := a.classes[c.class]
			most = max(most, bytes)
			series.Buckets = append(series.Buckets, point(float64(i), float64(bytes)))
		}
		if most > 0 {
			f.Series = append(f.Series, series)
		}
	}
	return f
}

func point(x, y float64) report.Bucket {
	return report.Bucket{First: x, Last: x, Min: y, Max: y, Sum: y, Count: 1}
}

// lossFigure plots the losses over the steps. frequencies is the loss of who knows
// but how frequent each byte is.
func (r *record) lossFigure(frequencies float64) report.Figure {
	caption := "By how many steps the weights had seen."
	f := report.Figure{
		Title: "Loss",
		X:     report.Axis{Label: "steps", Unit: report.Count},
		Y:     report.Axis{Label: "nats per byte"},
	}
	if n := r.train.Stride(); n > 1 {
		caption += fmt.Sprintf(" One column is %d steps.", n)
		f.Series = append(f.Series, report.Series{Name: "train, smallest to largest", Mark: report.Band, Color: report.Blue, Buckets: r.train.Buckets()})
	}
	f.Caption = caption
	f.Series = append(f.Series,
		report.Series{Name: "train", Mark: report.Line, Color: report.Blue, Buckets: r.train.Buckets()},
		report.Series{Name: "held out", Mark: report.Dots, Color: report.Orange, Buckets: r.heldout.Buckets()},
		report.Series{Name: "byte frequencies alone", Mark: report.Level, Color: report.Violet, Buckets: []report.Bucket{point(0, frequencies)}},
	)
	return f
}

// lossTable is the plot of the losses in numbers.
func (t *training) lossTable() report.Table {
	table := report.Table{Title: "Losses in numbers", Head: []string{"steps", "train, mean", "smallest", "largest"}, Folded: true}
	decimals := func(x float64) string { return strconv.FormatFloat(x, 'f', 4, 64) }
	for _, b := range t.record.train.Buckets() {
		steps := units.Count(int64(b.First))
		if b.Last > b.First {
			steps += " to " + units.Count(int64(b.Last))
		}
		table.Rows = append(table.Rows, []string{steps, decimals(b.Mean()), decimals(b.Min), decimals(b.Max)})
	}
	return table
}

// settings is the configuration of the run.
func (t *training) settings(s *summary) report.Table {
	table := report.Table{Title: "Settings", Folded: true}
	add := func(name, value string) { table.Rows = append(table.Rows, []string{name, value}) }
	for _, name := range append([]string{"ranks", "stages", "plan", "group", "cap", "slices", "descending", "capacity", "recompute"}, deciding...) {
		add("-"+name, t.opts.set.Lookup(name).Value.String())
	}
	add("parameters", units.Count(s.Parameters))
	add("text", s.DataSHA256)
	add("weights", s.WeightsSHA256)
	add("books audited", strconv.Itoa(s.BooksAudited))
	add("seconds in steps", strconv.FormatFloat(s.Seconds, 'f', 1, 64))
	return table
}
