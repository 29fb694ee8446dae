package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/weir-ml/weir/cmd/weir/internal/timing"
	"github.com/weir-ml/weir/cmd/weir/internal/traces"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/choose"
	"github.com/weir-ml/weir/schedule/draw"
	"github.com/weir-ml/weir/schedule/simulate"
	"github.com/weir-ml/weir/schedule/units"
	"github.com/weir-ml/weir/trainer/atomicfile"
	"github.com/weir-ml/weir/trainer/terminal"
)

// traceCmd compares the times of a run with the simulated times of its plan.
type traceCmd struct {
	Files        []string `arg:"" name:"file" predictor:"file" help:"Traces of all ranks, folders of them or patterns: JSON of torch.profiler, a file for each rank; Chrome traces of weir; spans of OpenTelemetry of Megatron-LM. They may end in .gz."`
	Plan         string   `help:"The plan file, or the schedule by name, that the run should have followed; by default the order of the run is simulated." placeholder:"NAME|FILE" predictor:"plan"`
	Costs        string   `help:"A cost file whose bytes --emit-costs keeps, since a trace has none." placeholder:"FILE" predictor:"file"`
	RanksPerHost int      `help:"Ranks that share a clock, if the traces do not name their hosts; by default all of them." placeholder:"N"`
	Pipeline     int      `help:"Which one of several pipelines side by side, from 0." placeholder:"K"`
	EmitCosts    string   `help:"Write the measured costs to this file, for weir choose, sim and fit." placeholder:"FILE"`
	Lengths      string   `help:"A file with the lengths of the sequences of each microbatch in tokens, a microbatch a line: --emit-costs then writes times that depend on lengths." placeholder:"FILE" predictor:"file"`
	Output       string   `short:"o" help:"Write a page to this file, which draws every rank as it ran above the same rank as it is simulated." placeholder:"FILE.html"`
	Choose       bool     `help:"Also search for the best order for the measured costs, with no more microbatches in flight than the run had." default:"true" negatable:""`
	JSON         bool     `help:"Print the report as JSON; times are nanoseconds."`
}

// Help returns the text that is printed below the flags.
func (traceCmd) Help() string {
	return `Actions are spans with names such as PP:2F7, as PyTorch annotates them: stage 2, forward, microbatch 7. docs/trace.md has the lines that do it for Schedule1F1B and in older versions.

Of several steps in a trace the one of median makespan is shown; costs are medians over all of them. A rank's gap is the median time that it lets pass before an action that could begin; it is part of the costs that are simulated and written. A message is copied from the later of two starts, that of the send and that of the receive, to its end; before that the receiver waits for the sender.`
}

// Run prints the comparison.
func (c *traceCmd) Run(s *streams) error {
	request := timing.Request{RanksPerHost: c.RanksPerHost, Pipeline: c.Pipeline}
	if c.RanksPerHost < 0 {
		return usage("--ranks-per-host %d: give 1 or more", c.RanksPerHost)
	}
	err := endsIn(c.Output, ".html")
	if err != nil {
		return err
	}
	if c.Costs != "" {
		if request.Costs, err = (&costFlags{Costs: c.Costs}).fromFile(0); err != nil {
			return err
		}
	}
	if request.Traces, err = traces.Read(c.Files...); err != nil {
		return err
	}
	report, err := timing.Analyze(request)
	if c.Plan != "" && (err == nil || errors.Is(err, timing.ErrRun)) {
		if request.Plan, err = c.plan(s, report); err != nil {
			return err
		}
		report, err = timing.Analyze(request)
	}
	if errors.Is(err, timing.ErrRun) {
		return unreadableIf(err, timing.ErrRun)
	}
	if err != nil {
		return err
	}
	if c.Lengths != "" {
		if c.EmitCosts == "" {
			return usage("--lengths is for --emit-costs: give both")
		}
		misfit, err := byLength(report, c.Lengths)
		if err != nil {
			return err
		}
		if !c.JSON {
			fmt.Fprintf(s.text, "The times by length that --emit-costs writes are at most %.1f %% off the medians of microbatches.\n\n", 100*misfit)
		}
	}
	if c.EmitCosts != "" {
		if err := atomicfile.Write(c.EmitCosts, func(w io.Writer) error { return simulate.WriteCosts(w, report.Model) }); err != nil {
			return err
		}
	}
	if c.Output != "" {
		if err := c.draw(s, report); err != nil {
			return err
		}
	}
	var better *suggestion
	if c.Choose && report.Simulated != nil {
		if better, err = suggest(report); err != nil {
			return err
		}
	}
	if c.JSON {
		return printJSON(s.out, struct {
			*timing.Report
			Better *suggestion `json:"better,omitempty"`
		}{report, better})
	}
	traceTable(s.text, report)
	better.print(s.text, report)
	return nil
}

// plan returns the plan in the file, or the plan of the named schedule for the ranks, stages and
// microbatches of the run. r is nil if the traces do not contain these.
func (c *traceCmd) plan(s *streams, r *timing.Report) (*schedule.Plan, error) {
	if _, unknown := schedule.Find(c.Plan); unknown == nil {
		if r == nil {
			return nil, usage("--plan %s: the traces alone do not say how many stages and microbatches there are: give a plan file", c.Plan)
		}
		return (&planFlags{Ranks: &r.Ranks, Stages: &r.Stages, Microbatches: &r.Microbatches, Quantize: "no"}).make(c.Plan)
	}
	file, err := readFile(s, c.Plan, "auto", "auto", planFlags{}, false)
	if err != nil {
		return nil, err
	}
	_, err = prove(file.Plan, file, file.Plan.Capacity)
	return file.Plan, err
}

// draw writes the page.
func (c *traceCmd) draw(s *streams, r *timing.Report) error {
	if r.Simulated == nil {
		return usage("--output draws the simulated plan next to the run, but nothing is simulated: %s", r.Refused)
	}
	planned, err := draw.Simulate(r.Plan, r.Model, r.Plan.Capacity)
	if err != nil {
		return err
	}
	labels := draw.Labels{Title: "The run, and its simulation with the costs that it had", Note: slow(r), Steps: [2]string{"run", "plan"}, Marked: -1}
	if r.Straggler != nil {
		labels.Marked = r.Straggler.Rank
	}
	return s.write(c.Output, func(w io.Writer) error { return draw.Compare(w, labels, r.Run, planned) })
}

// suggestion is the best order for the measured costs.
type suggestion struct {
	Name     string `json:"name"`
	Makespan int64  `json:"makespan"` // simulated
	// InFlight is the maximum number of microbatches in flight on a rank of the run, where each stage counts
	// separately; -1 if bytes are known.
	InFlight int64 `json:"in_flight"`
}

// suggest searches for the fastest order that needs no more memory than the run. If the costs have no
// bytes, it measures memory in microbatches in flight. It returns nil if no order fits, and for a plan without
// backward, with copies of the model, or with slices.
func suggest(r *timing.Report) (*suggestion, error) {
	out := &suggestion{InFlight: -1}
	if r.Plan.Mode != schedule.Training || r.Plan.Placement.Copies > 1 || r.Plan.Slices > 1 {
		return nil, nil
	}
	costs := r.Model
	if !slices.ContainsFunc(costs.Stages, func(s simulate.StageCosts) bool { return s.Saved > 0 }) {
		costs = withStages(costs, func(s *simulate.StageCosts) { s.Saved = 1 })
	}
	now, err := simulate.Run(r.Plan, costs, r.Plan.Capacity)
	if err != nil {
		return nil, err
	}
	request := choose.Request{
		Ranks: r.Ranks, Stages: r.Stages, Microbatches: r.Microbatches, Costs: costs, Runtime: r.Plan.Runtime, Capacity: max(r.Plan.Capacity, 0),
	}
	for _, rank := range now.Ranks {
		request.Memory = max(request.Memory, rank.Peak)
	}
	if costs != r.Model {
		out.InFlight = request.Memory
	}
	choice, err := choose.Choose(request)
	if errors.Is(err, choose.ErrNone) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	out.Name, out.Makespan = choice.Best.Name(), choice.Best.Report.Makespan
	return out, nil
}

func (b *suggestion) print(w io.Writer, r *timing.Report) {
	if b == nil {
		return
	}
	memory := "no more bytes on a rank than in the run"
	if b.InFlight >= 0 {
		memory = fmt.Sprintf("at most %s in flight on a rank, as in the run", units.Number(b.InFlight, "microbatch"))
		if r.Stages > r.Ranks {
			memory += " (a microbatch counts once for each stage that holds it)"
		}
	}
	text := fmt.Sprintf("\nNo order that was found for these costs saves 1 %%, with %s.\n", memory)
	if less := 100 * (1 - float64(b.Makespan)/float64(r.Simulated.Makespan)); less >= 1 {
		text = fmt.Sprintf("\nThe best order for these costs, %s, would take %s, %.1f %% less, with %s.\n", b.Name, span(b.Makespan), less, memory)
	}
	io.WriteString(w, text)
}

// span formats a time in nanoseconds.
func span(ns int64) string { return units.Seconds(float64(ns) / 1e9) }

// slow describes the rank or the link that delays the step, or returns "" if there is none.
func slow(r *timing.Report) string {
	switch s := r.Straggler; {
	case s == nil:
		return ""
	case s.Link != nil:
		return fmt.Sprintf("The link from rank %d to rank %d is slow: a message takes %s, %.1f times the median of the other links.", s.Link.From, s.Link.To, span(s.Link.Copying), s.Factor)
	default:
		return fmt.Sprintf("Rank %d (%s) is slow: it works %.2f times as long as the median of the other ranks.", s.Rank, terminal.Quote(r.PerRank[s.Rank].File), s.Factor)
	}
}

// traceTable prints the report for people.
func traceTable(w io.Writer, r *timing.Report) {
	fmt.Fprintf(w, "%s, %s, %s, %s", units.Number(r.Ranks, "rank"), units.Number(r.Stages, "stage"), units.Number(r.Microbatches, "microbatch"), units.Number(len(r.Steps), "step"))
	if len(r.Steps) > 1 {
		fmt.Fprintf(w, "; step %d is shown, whose makespan is the median", r.Shown)
	}
	fmt.Fprintln(w)
	if len(r.Absent) > 0 {
		fmt.Fprintf(w, "\nThere is no trace of %s. The figures assume that they belong to other pipelines.\n", units.Ranks(r.Absent))
	}
	rows := [][]string{{"", "measured"}, {"makespan"}, {"busiest rank"}, {"bubble"}}
	columns := []timing.Times{r.Measured}
	if r.Simulated != nil {
		rows[0], columns = append(rows[0], "simulated"), append(columns, *r.Simulated)
	}
	for _, x := range columns {
		rows[1], rows[2], rows[3] = append(rows[1], span(x.Makespan)), append(rows[2], span(x.Ideal)), append(rows[3], units.Percent(x.Bubble, 2))
	}
	printRight(w, rows)
	if sim := r.Simulated; sim != nil {
		fmt.Fprintf(w, "\nThe simulated makespan differs by %+.1f %% from the measured one.\n", 100*(float64(sim.Makespan)/float64(r.Measured.Makespan)-1))
	}
	if r.Refused != "" {
		fmt.Fprintf(w, "\nNothing is simulated: %s\n", r.Refused)
	}
	for i, d := range r.Departures {
		if i == 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "Rank %d left the plan at %v, where the plan has %v.\n", d.Rank, d.Ran, d.Plan)
	}
	if s := r.Straggler; r.Simulated != nil && s == nil {
		fmt.Fprint(w, "\nNo rank and no link holds the step up: none takes 10 % longer than the others and would save 2 % if it were as fast.\n")
	} else if s != nil {
		fmt.Fprintf(w, "\n%s\n", slow(r))
		fmt.Fprintf(w, "If it were as fast as they are, the step would take %s, %.1f %% less.\n", span(s.Makespan), 100*(1-float64(s.Makespan)/float64(r.Simulated.Makespan)))
	}

	rows = [][]string{{"rank", "busy", "wait", "wire", "gap"}}
	if r.Simulated != nil {
		rows[0] = append(rows[0], "simulated: busy", "wait", "wire")
	}
	for i, one := range r.PerRank {
		name := strconv.Itoa(i)
		if one.Global != i {
			name = fmt.Sprintf("%d of the job: %d", one.Global, i)
		}
		row := []string{name, span(one.Busy), span(one.Wait), span(one.Wire), span(one.Gap)}
		if s := one.Simulated; s != nil {
			row = append(row, span(s.Busy), span(s.Wait), span(s.Wire))
		}
		rows = append(rows, row)
	}
	printRight(w, rows)

	rows = [][]string{{"stage", "rank", "kind", "median", "5 % below", "5 % above", "longest", "slowest microbatch"}}
	for _, c := range r.Costs {
		slowest := slices.Max(c.ByMicrobatch)
		rows = append(rows, []string{strconv.Itoa(c.Stage), strconv.Itoa(c.Rank), c.Kind, span(c.Median), span(c.Low), span(c.High), span(c.Most), fmt.Sprintf("%d: %s", slices.Index(c.ByMicrobatch, slowest), span(slowest))})
	}
	printRight(w, rows)
	if r.Halved {
		fmt.Fprintln(w, "\nI and W were not measured: in costs that are written each is half of B.")
	}

	rows = [][]string{{"link", "messages", "timed", "a copy", "copying", "waiting for the sender"}}
	for _, l := range r.Links {
		copying := "-"
		if l.Copying >= 0 {
			copying = span(l.Copying)
		}
		rows = append(rows, []string{fmt.Sprintf("%d to %d", l.From, l.To), strconv.Itoa(l.Messages), strconv.Itoa(l.Timed), copying, span(l.Copied), span(l.Waiting)})
	}
	printRight(w, rows)
	for _, c := range r.Clocks[1:] {
		name := terminal.Quote(c.Host)
		if !c.Known {
			fmt.Fprintf(w, "\nNo messages say how far the clock of %s is off: times between it and %s mean nothing.\n", name, terminal.Quote(r.Clocks[0].Host))
			continue
		}
		sign := ""
		if c.Offset < 0 {
			sign = "-"
		}
		fmt.Fprintf(w, "\nThe clock of %s was moved by %s%s, within %s either way.\n", name, sign, span(max(c.Offset, -c.Offset)), span(c.Width/2))
	}
}
