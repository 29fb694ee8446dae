package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/weir-ml/weir/internal/formats/jsonfile"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/draw"
	"github.com/weir-ml/weir/schedule/lower"
	"github.com/weir-ml/weir/schedule/simulate"
	"github.com/weir-ml/weir/schedule/slots"
	"github.com/weir-ml/weir/schedule/units"
)

// slotsCmd assigns the tensors of a plan to slots.
type slotsCmd struct {
	timedPlan
	With       []string `help:"Another plan that never runs in the same step, such as one for another size of a group: a file, or a schedule with the same flags. Each pool has the slots of the plan that needs the most." placeholder:"PLAN"`
	Evaluation bool     `help:"The same for the forwards of its stages alone, in depth-first order, as Weir evaluates a plan file."`
	Pool       string   `help:"What shares a pool: each stage and direction has one, each direction, or the rank." enum:"stage,direction,rank" default:"rank" unless:"verify"`
	Hold       string   `help:"How long a stage holds what it was given: taken is until the computation that takes it; last until its last computation for the microbatch, as autograd does. auto is last for a plan of PyTorch." enum:"auto,taken,last" default:"auto" unless:"verify"`
	Against    string   `help:"Compare with this plan, or with this output of --json: the exit status is 1 if a pool needs more slots." placeholder:"OLD" xor:"output"`
	Verify     string   `help:"Verify this output of --json, of any planner, in place of assigning slots." placeholder:"FILE" xor:"output"`
	JSON       bool     `help:"Print the slots as JSON."`
	Output     string   `help:"Draw what each slot holds in the course of a step, as a picture or as a page that zooms: FILE.svg, FILE.png or FILE.html." short:"o" placeholder:"FILE" xor:"output"`
}

// Help returns the text that is printed below the flags.
func (slotsCmd) Help() string {
	return `A slot is a buffer that holds one tensor after another: what a rank received, the saved state of a stage, its outputs, or the gradients that it returns. The number of slots is the least for the order of the plan, and the proof holds for all microbatches. docs/slots.md defines all terms and the JSON.

A plan without transfers gets them for --capacity, by default 1. The least number of unreleased sends is the least K for which the makespan with the costs is the same as without a limit.

The exit status is 1 if --against finds a pool with more slots, or --verify a fault.`
}

// Run prints the slots, the changes, or the faults.
func (c *slotsCmd) Run(s *streams) error {
	if err := endsIn(c.Output, ".svg", ".png", ".html", ".htm"); err != nil {
		return err
	}
	plan, costs, err := c.transferred(s, c.Plan)
	if err != nil {
		return err
	}
	plans := []*schedule.Plan{plan}
	for _, name := range c.With {
		other, _, err := c.transferred(s, name)
		if err != nil {
			return err
		}
		plans = append(plans, other)
	}
	if c.Evaluation {
		forwards, err := lower.RuleFromPlan(plan)(schedule.Params{Microbatches: plan.Microbatches, Mode: schedule.ForwardOnly})
		if err == nil && forwards.Placement.Ranks > 1 {
			forwards, err = lower.Transfers(forwards, plan.Capacity)
		}
		if err != nil {
			return err
		}
		plans = append(plans, forwards)
	}
	if c.Verify != "" {
		return c.verify(s, plans)
	}
	table, err := c.table(costs, plans...)
	if err != nil {
		return err
	}
	if c.Against != "" {
		return c.compare(s, table)
	}
	if c.Output != "" {
		if err := c.draw(s, table, plan, costs); err != nil {
			return err
		}
	}
	if c.JSON {
		return slots.Write(s.out, table)
	}
	printSlots(s.text, table)
	return nil
}

// table returns the slots of plans, and the unreleased sends of the first one with its costs.
func (c *slotsCmd) table(costs *simulate.Costs, plans ...*schedule.Plan) (*slots.Table, error) {
	cfg := slots.Config{Pooling: slots.Pooling(c.Pool)}
	if c.Hold != "auto" {
		cfg.Hold = slots.Hold(c.Hold)
	}
	table, err := slots.Make(cfg, plans...)
	if err == nil {
		table.Variants[0].Sends, err = slots.LeastSends(plans[0], costs)
	}
	return table, err
}

// transferred returns a proven plan with transfers, and its costs.
func (c *slotsCmd) transferred(s *streams, name string) (*schedule.Plan, *simulate.Costs, error) {
	own := c.timedPlan
	if own.Plan = name; name != c.Plan {
		if _, err := schedule.Find(name); err != nil {
			own.planFlags = planFlags{Quantize: c.Quantize, Overlap: 1}
		}
	}
	plan, costs, err := own.provenPlan(s)
	if err != nil || plan.Placement.Ranks == 1 || plan.HasTransfers() {
		return plan, costs, err
	}
	capacity := or(c.Capacity, defaultLinks)
	if plan.Runtime == schedule.PyTorch {
		capacity = 0
	}
	plan, err = lower.Transfers(plan, capacity)
	return plan, costs, err
}

// verify verifies the file of --verify for the plans, and prints the outcome.
func (c *slotsCmd) verify(s *streams, plans []*schedule.Plan) error {
	table, err := c.read(s, c.Verify)
	if err != nil {
		return err
	}
	var found faults
	for i, plan := range plans {
		for _, f := range slots.Verify(table, i, plan) {
			one := fault{File: c.Verify, Text: f.Text}
			if f.Rank >= 0 {
				one.Rank, one.Text = &f.Rank, fmt.Sprintf("rank %d: %s", f.Rank, f.Text)
			}
			if f.Position >= 0 {
				one.Text = fmt.Sprintf("rank %d, action %d: %s", f.Rank, f.Position, f.Text)
			}
			found = append(found, one)
		}
	}
	if len(table.Variants) != len(plans) {
		found = append(found, fault{File: c.Verify, Text: fmt.Sprintf("it has %s, and the command line names %d: add them with --with", units.Number(len(table.Variants), "plan"), len(plans))})
	}
	if c.JSON {
		err = printJSON(s.out, struct {
			Valid  bool   `json:"valid"`
			Faults faults `json:"faults,omitempty"`
		}{len(found) == 0, found})
	}
	if len(found) > 0 {
		return errors.Join(err, found)
	}
	if !c.JSON {
		fmt.Fprintf(s.text, "ok: no slot is written while it is alive, and no pool has fewer: %s\n", units.Number(total(table.Pools), "slot"))
	}
	return err
}

func (c *slotsCmd) read(s *streams, name string) (*slots.Table, error) {
	in, err := s.open(name)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	table, err := slots.Read(in)
	return table, unreadableIf(err, slots.ErrTable)
}

func total(pools []slots.Pool) (n int) {
	for _, p := range pools {
		n += p.Slots
	}
	return n
}

// draw draws the slots of a plan, one row for each, at the times of its simulation.
func (c *slotsCmd) draw(s *streams, table *slots.Table, plan *schedule.Plan, costs *simulate.Costs) error {
	timed, err := draw.Simulate(plan, costs, plan.Capacity)
	if err != nil {
		return err
	}
	rows := &draw.Step{Plan: plan, Unit: timed.Unit, Scale: timed.Scale, Facts: fmt.Sprintf("%s in pools by %s", units.Number(total(table.Pools), "slot"), table.Pooling)}
	first := make([]int, len(table.Pools)) // by pool: its first row
	for i, p := range table.Pools {
		first[i] = len(rows.Rows)
		for slot := range p.Slots {
			rows.Rows = append(rows.Rows, draw.Row{Name: fmt.Sprintf("%s %d", p.Tensor, slot), Note: strings.Replace(poolName(p), ", "+string(p.Tensor), "", 1), Rank: p.Rank})
		}
	}
	rows.Events = make([][]simulate.TimedAction, len(rows.Rows))
	slots.Walk(table, 0, plan, func(l slots.Life) {
		kind := schedule.F
		if l.Direction == slots.Backward {
			kind = schedule.B
		}
		row, events := first[l.Pool]+l.Slot, timed.Events[table.Pools[l.Pool].Rank]
		rows.Events[row] = append(rows.Events[row], simulate.TimedAction{
			Action: schedule.NewAction(kind, l.Stage, int(l.Microbatch)), Start: events[l.Birth].Start, End: events[l.Death].End,
		})
	})
	write := rows.HTML
	switch filepath.Ext(c.Output) {
	case ".svg":
		write = rows.SVG
	case ".png":
		write = asPNG(rows.SVG)
	}
	return s.write(c.Output, write)
}

// slotsDiff is the output of --against with --json.
type slotsDiff struct {
	Schema   int         `json:"schema"` // 1
	Was      int         `json:"was"`
	Now      int         `json:"now"`
	SendsWas int         `json:"sends_was,omitempty"`
	SendsNow int         `json:"sends_now,omitempty"`
	Changes  []slotsMove `json:"changes"`
}

// slotsMove describes a pool whose number of slots has changed.
type slotsMove struct {
	slots.Pool
	Was int `json:"was"`
}

// compare prints the pools that have changed.
func (c *slotsCmd) compare(s *streams, now *slots.Table) error {
	was, err := c.old(s)
	if err != nil {
		return err
	}
	if was.Pooling != now.Pooling || was.Hold != now.Hold {
		return usage("%s has --pool %s and --hold %s, and the plan is read with %s and %s: give both the same", c.Against, was.Pooling, was.Hold, now.Pooling, now.Hold)
	}
	out, worse := slotsDiff{1, total(was.Pools), total(now.Pools), 0, now.Variants[0].Sends, []slotsMove{}}, false
	if len(was.Variants) > 0 {
		out.SendsWas = was.Variants[0].Sends
	}
	for _, change := range slots.Compare(was, now) {
		change.Slots = change.Now
		out.Changes = append(out.Changes, slotsMove{change.Pool, change.Was})
		worse = worse || change.Now > change.Was
	}
	if c.JSON {
		err = jsonfile.Write(s.out, out)
	} else {
		fmt.Fprintf(s.text, "%s, before %d\n", units.Number(out.Now, "slot"), out.Was)
		if out.SendsNow != out.SendsWas && min(out.SendsNow, out.SendsWas) > 0 { // both are known
			fmt.Fprintf(s.text, "  unreleased sends of a rank: %d, before %d\n", out.SendsNow, out.SendsWas)
		}
		for _, m := range out.Changes {
			fmt.Fprintf(s.text, "  %s: %d, before %d%s\n", poolName(m.Pool), m.Slots, m.Was, map[bool]string{true: ", worse"}[m.Slots > m.Was])
		}
	}
	if err == nil && worse {
		return errShown
	}
	return err
}

// old returns the slots to compare with: of a file that --json has written, or of a plan.
func (c *slotsCmd) old(s *streams) (*slots.Table, error) {
	if in, err := s.open(c.Against); err == nil {
		text, err := io.ReadAll(io.LimitReader(in, 1<<26))
		in.Close()
		if err != nil {
			return nil, err
		}
		if bytes.Contains(text[:min(len(text), 1<<10)], []byte(`"pooling"`)) {
			table, err := slots.Read(struct {
				io.Reader
				named
			}{bytes.NewReader(text), named(c.Against)})
			return table, unreadableIf(err, slots.ErrTable)
		}
	}
	plan, costs, err := c.transferred(s, c.Against)
	if err != nil {
		return nil, err
	}
	return c.table(costs, plan)
}

// named is the name of a file, for errors.
type named string

// Name returns the name.
func (n named) Name() string { return string(n) }

// poolName names a pool.
func poolName(p slots.Pool) string {
	name := fmt.Sprintf("rank %d, %s", p.Rank, p.Tensor)
	if p.Direction != "" && p.Tensor == slots.Received {
		name += ", " + string(p.Direction)
	}
	if p.Stage != nil {
		name += fmt.Sprintf(", stage %d", *p.Stage)
	}
	return name
}

// printSlots prints the numbers of slots in each pooling.
func printSlots(w io.Writer, t *slots.Table) {
	for i, v := range t.Variants {
		if i > 0 {
			fmt.Fprint(w, "or ")
		}
		fmt.Fprintf(w, "%s, %s, %s\n", v.Plan, v.Mode, units.Number(v.Microbatches, "microbatch"))
	}
	fmt.Fprintf(w, "a stage holds what it was given until %s\n", map[slots.Hold]string{
		slots.Taken: "the computation that takes it", slots.Last: "its last computation for the microbatch",
	}[t.Hold])
	rows := [][]string{{"slots, in a pool for", "a stage and direction", "a direction", "a rank"}}
	for _, tensor := range slots.Tensors() {
		all := slots.Count{}
		row := func(of string, n slots.Count, fewer string) {
			rows = append(rows, []string{string(tensor) + ", " + of, fmt.Sprint(n.ByStage), fmt.Sprint(n.ByDirection), fmt.Sprint(n.ByRank) + fewer})
		}
		for _, n := range t.Counts {
			if n.Tensor == tensor {
				row(fmt.Sprintf("rank %d", n.Rank), n, "")
				all.ByStage, all.ByDirection, all.ByRank = all.ByStage+n.ByStage, all.ByDirection+n.ByDirection, all.ByRank+n.ByRank
			}
		}
		if all.ByStage > 0 {
			row("all", all, "")
			rows[len(rows)-1] = append(rows[len(rows)-1], fmt.Sprintf("%s %% fewer", units.Decimal(100-100*float64(all.ByRank)/float64(all.ByStage), 1)))
		}
	}
	printRight(w, rows)
	if n := t.Variants[0].Sends; n > 0 {
		fmt.Fprintf(w, "\nThe makespan needs at most %s a rank.\n", units.Number(n, "unreleased send"))
	}
}
