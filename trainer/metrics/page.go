package metrics

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/units"
	"github.com/weir-ml/weir/trainer/report"
	"github.com/weir-ml/weir/transport"
)

// Page returns the page of the run so far: its memory log as weir mem log shows it, the live bytes at each of
// the last actions, and the losses. The caller sets the page's title, and may add to the page.
func (r *Recorder) Page() *report.Page {
	s := r.Summary()
	p := &report.Page{Alert: r.alert(), Timeline: r.timeline()}
	r.memory.AddTo(p, r.memory.Summary())
	p.Facts = append(p.Facts, r.facts(&s)...)
	for i := range p.Facts {
		p.Facts[i].Good = p.Facts[i].Good && r.failure == nil
	}
	p.Figures = append(p.Figures, r.actionsFigure(), r.lossFigure())
	if s.Ranks > 1 && r.steps > 0 {
		p.Tables = append(p.Tables, s.RankTable())
	}
	p.Tables = append(p.Tables, r.lossTable())
	return p
}

// alert describes why the run failed, after which step and on which rank.
func (r *Recorder) alert() report.Alert {
	if r.failure == nil {
		return report.Alert{}
	}
	title := fmt.Sprintf("The run failed after step %d", r.First+r.steps)
	var lost interface{ LostRank() int }
	var placed *transport.StepError
	if errors.As(r.failure, &lost) {
		title += fmt.Sprintf(": rank %d is lost", lost.LostRank())
	} else if errors.As(r.failure, &placed) {
		title += fmt.Sprintf(", on rank %d", placed.Rank)
	}
	return report.Alert{Title: title, Text: r.failure.Error()}
}

// facts returns the numbers of the run that its memory log lacks.
func (r *Recorder) facts(s *Summary) (facts []report.Fact) {
	if r.steps == 0 {
		return nil
	}
	tokens := r.Tokens
	if tokens == "" {
		tokens = "tokens"
	}
	if s.LossHeldout != nil {
		standard := ""
		if s.LossHeldoutStandard != nil {
			standard = fmt.Sprintf(", ± %.3f", *s.LossHeldoutStandard)
		}
		facts = append(facts, report.Fact{Label: "held-out loss", Value: decimals(s.LossHeldout, 3), Note: r.LossUnit + standard})
	}
	facts = append(facts,
		report.Fact{Label: "train loss", Value: decimals(s.LossTrain, 3), Note: "of the last step, from " + decimals(s.LossTrainFirst, 3)},
		report.Fact{Label: "speed", Value: units.Count(int64(s.TokensPerSecond)), Note: tokens + " a second"},
		report.Fact{Label: "allocations per step", Value: units.Count(int64(s.Allocations)), Note: "on the Go heap"},
	)
	if s.Ranks > 1 {
		facts = append(facts, report.Fact{Label: "bubble", Value: units.Percent(s.BubbleMakespan, 1), Note: "of a makespan of " + units.Seconds(s.MakespanSeconds) + s.simulated()})
	}
	return facts
}

// decimals formats a number with the given number of digits, or returns "-" if x is nil.
func decimals(x *float64, digits int) string {
	if x == nil {
		return "-"
	}
	return strconv.FormatFloat(*x, 'f', digits, 64)
}

// actionsFigure plots the live bytes by class at each of the last actions of the rank with the
// highest peak, without resident memory, which never changes.
func (r *Recorder) actionsFigure() report.Figure {
	fullest, words := r.fullest(), ""
	if len(r.ranks) > 1 {
		words = fmt.Sprintf(" This is rank %d, which had the highest peak.", fullest)
	}
	f := report.Figure{
		Title: "Inside the last microbatches",
		X:     report.Axis{Label: "action", Unit: report.Count},
		Y:     report.Axis{Label: "memory", Unit: report.Bytes, FromZero: true},
	}
	actions := r.ranks[fullest].lastFew()
	backwards := "B"
	for _, a := range actions {
		if a.Action.Kind() == schedule.I {
			backwards = "I and W"
		}
		f.X.Names = append(f.X.Names, a.Action.Kind().String()+strconv.Itoa(a.Action.Stage()))
		f.X.Groups = append(f.X.Groups, "microbatch "+strconv.Itoa(a.Action.Microbatch()))
	}
	if len(actions) > 0 {
		f.Caption = "Live bytes when each action begins, by class, without the model (" +
			units.Size(actions[0].Live[memory.Resident]) + "). Forwards (F) save for the backwards (" + backwards + ") of the same " +
			"microbatch, which release all of it. The number is the stage." + words
	}
	f.Series = report.ByClass(report.Bars, len(actions), func(i int, class memory.Class) report.Bucket {
		return report.Point(float64(i), float64(actions[i].Live[class]))
	})
	return f
}

// timeline shows when each rank's last computations ran. Gaps are waits, transfers and the ends
// of steps.
func (r *Recorder) timeline() *report.Timeline {
	t := &report.Timeline{
		Title:   "The last actions by the clock",
		Caption: "Forwards (F), backwards (B) and their halves (I, W), with stage and microbatch. Between them are waits, transfers and, once a step, the update.",
	}
	from := time.Duration(math.MinInt64) // since this time, the actions of every rank are still kept
	for i := range r.ranks {
		if actions := r.ranks[i].lastFew(); len(actions) > 0 { // a lost rank has none
			from = max(from, actions[0].Start)
		}
	}
	var shown [schedule.NumKinds]bool
	for i := range r.ranks {
		row := report.TimelineRow{Name: "rank " + strconv.Itoa(i)}
		for _, a := range r.ranks[i].lastFew() {
			if a.Start < from {
				continue
			}
			shown[a.Action.Kind()] = true
			row.Spans = append(row.Spans, report.Span{
				Start: (a.Start - from).Seconds(), End: (a.End - from).Seconds(), Label: a.Action.String(), Color: report.KindColor(a.Action.Kind()),
			})
		}
		t.Rows = append(t.Rows, row)
	}
	for kind := range schedule.Kind(schedule.NumKinds) {
		if shown[kind] {
			t.Legend = append(t.Legend, report.Label{Name: kind.String(), Color: report.KindColor(kind)})
		}
	}
	if !slices.ContainsFunc(t.Rows, func(row report.TimelineRow) bool { return row.Spans != nil }) {
		t.Rows = nil
	}
	return t
}

// lossFigure plots the losses over the steps.
func (r *Recorder) lossFigure() report.Figure {
	f := report.Figure{
		Title: "Loss", Caption: "By number of completed steps.",
		X: report.Axis{Label: "steps", Unit: report.Count},
		Y: report.Axis{Label: r.LossUnit},
	}
	if n := r.train.Stride(); n > 1 {
		f.Caption += fmt.Sprintf(" Each column is %d steps.", n)
		f.Series = append(f.Series, report.Series{Name: "train, smallest to largest", Mark: report.Band, Color: report.Blue, Buckets: r.train.Buckets()})
	}
	f.Series = append(f.Series,
		report.Series{Name: "train", Mark: report.Line, Color: report.Blue, Buckets: r.train.Buckets()},
		report.Series{Name: "held out", Mark: report.Dots, Color: report.Orange, Buckets: r.heldout.Buckets()})
	for _, name := range slices.Sorted(maps.Keys(r.Baselines)) {
		f.Series = append(f.Series, report.Series{Name: name, Mark: report.Level, Color: report.Violet, Buckets: []report.Bucket{report.Point(0, r.Baselines[name])}})
	}
	return f
}

// lossTable returns a table with the training losses of the loss figure.
func (r *Recorder) lossTable() report.Table {
	table := report.Table{Title: "Losses in numbers", Head: []string{"steps", "train, mean", "smallest", "largest"}, Folded: true}
	for _, b := range r.train.Buckets() {
		steps := units.Count(int64(b.First))
		if b.Last > b.First {
			steps += " to " + units.Count(int64(b.Last))
		}
		mean := b.Mean()
		table.Rows = append(table.Rows, []string{steps, decimals(&mean, 4), decimals(&b.Min, 4), decimals(&b.Max, 4)})
	}
	return table
}
