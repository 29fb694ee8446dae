package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"text/tabwriter"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/choose"
	"github.com/weir-ml/weir/schedule/format"
	"github.com/weir-ml/weir/schedule/simulate"
	"github.com/weir-ml/weir/schedule/units"
	"github.com/weir-ml/weir/trainer/atomicfile"
)

// chooseCmd finds the best schedule.
type chooseCmd struct {
	Ranks        int `help:"Ranks, the places of the pipeline." required:"" placeholder:"P"`
	Stages       int `help:"Stages of the model; by default the stages of the cost file, or two per rank." placeholder:"S"`
	Microbatches int `help:"Microbatches of a step, in each replica." required:"" placeholder:"M"`
	costFlags    `group:"Costs:"`
	Cap          *float64 `help:"Without --costs, or if they have no bytes: the most microbatches that a rank may hold; a microbatch counts as 1 if the rank holds it in all stages that it visits there." placeholder:"K"`
	Memory       size     `help:"With --costs that have saved bytes: the most bytes on a rank, such as 24G." placeholder:"BYTES"`
	Far          size     `help:"With --costs: bytes of far memory for each rank, such as 64GiB, to which saved tensors may go between forward and backward. The cost file, or --far-rate, says how fast." placeholder:"BYTES"`
	FarRate      rate     `help:"With --costs in ns, us, ms or s: the rate of a link to far memory in each direction, such as 25GB/s." placeholder:"RATE"`
	FarShared    int      `help:"Ranks that share such a link; each gets its part of the rate." default:"1" placeholder:"N" needs:"far-rate"`
	Runtime      string   `help:"The runtime of the plan: weir, or pytorch, whose ranks post a receive and wait in the computation that needs it." enum:"weir,pytorch" default:"weir"`
	Capacity     int      `help:"Messages that a link between ranks of weir holds; 0 is rendezvous, -1 no limit." default:"1" placeholder:"N"`
	replicaFlags `group:"Replicas:"`
	Clock        string `help:"The time to minimize: makespan, from the first start to the last end over all ranks, or span, the longest time of a single rank." enum:"makespan,span" default:"makespan"`
	Reordered    bool   `help:"Include plans whose backward does not take microbatches in ascending order, so that gradients differ in their last bits."`
	Output       string `help:"Write the best plan to this file, in JSON with its costs." short:"o" placeholder:"FILE"`
	JSON         bool   `help:"Print the outcome as JSON."`
}

// Help returns the text that is printed below the flags.
func (chooseCmd) Help() string {
	return `Makes, lowers, proves and simulates every schedule that fits the ranks and the stages. Also searches for orders for these costs, for every placement of the model, under several limits of memory. The best plan is the fastest within the memory; the front are the plans that no other plan beats in both time and memory.

A bubble is 1 - ideal/clock; ideal is the work of the busiest rank in the plan's own placement. Idle is the share of the time of all ranks in which they do not compute, and can be compared between placements.`
}

// chosen is the output of --json.
type chosen struct {
	Layers     []int       `json:"layers_by_stage,omitempty"` // of a profile
	Best       string      `json:"best"`
	Front      []string    `json:"front"`
	Candidates []candidate `json:"candidates"`
}

type candidate struct {
	Name           string  `json:"name"`
	Makespan       float64 `json:"makespan,omitempty"`
	BubbleMakespan float64 `json:"bubble_makespan,omitempty"`
	Span           float64 `json:"span,omitempty"`
	BubbleSpan     float64 `json:"bubble_span,omitempty"`
	IdleMakespan   float64 `json:"idle_makespan,omitempty"`
	IdleSpan       float64 `json:"idle_span,omitempty"`
	Step           float64 `json:"step,omitempty"` // with everything that replicas exchange
	Gathered       int     `json:"gathered,omitempty"`
	GatheredBy     []int   `json:"gathered_by_rank,omitempty"`
	PeakBytes      int64   `json:"peak_bytes,omitempty"`
	Peak           float64 `json:"peak_microbatches,omitempty"`
	FarPeakBytes   int64   `json:"far_peak_bytes,omitempty"`
	FarPeak        float64 `json:"far_peak_microbatches,omitempty"`
	Fits           bool    `json:"fits"`
	Front          bool    `json:"front"`
	Refused        string  `json:"refused,omitempty"`
}

// Run prints the choice.
func (c *chooseCmd) Run(s *streams) error {
	if err := c.validate(); err != nil {
		return err
	}
	costs, err := c.costs()
	if err != nil {
		return err
	}
	costs = c.apply(costs)
	request := choose.Request{
		Ranks: c.Ranks, Stages: c.Stages, Microbatches: c.Microbatches, Costs: costs,
		Memory: int64(c.Memory), Far: int64(c.Far), Capacity: c.Capacity, Reordered: c.Reordered, Gathered: c.Gathered,
	}
	if c.FarTime.Rat != nil {
		request.Far = math.MaxInt64
	}
	request.Runtime, _ = schedule.ParseRuntime(c.Runtime)
	if c.Clock == "span" {
		request.Clock = choose.Span
	}
	if c.Cap != nil {
		request.Memory = max(int64(*c.Cap*float64(costs.Microbatch)), 1)
	}
	choice, err := choose.Choose(request)
	switch {
	case choice == nil:
		return err
	case errors.Is(err, choose.ErrNone):
		err = c.none(choice, costs, request.Memory)
	case err != nil:
		return err
	}
	if err == nil && c.Output != "" { // before the table, whose reader may stop early
		err = c.write(choice.Best.Plan, costs)
	}
	if c.JSON {
		return errors.Join(printJSON(s.out, c.outcome(choice, costs)), err)
	}
	c.table(s.text, choice, costs)
	return err
}

// write writes the best plan with its lifetimes to the file.
func (c *chooseCmd) write(best *schedule.Plan, costs *simulate.Costs) error {
	plan, err := withLifetimes(best, c.Capacity)
	if err != nil {
		return err
	}
	return atomicfile.Write(c.Output, func(w io.Writer) error { return format.WriteJSON(w, plan, costs) })
}

// validate returns an error for invalid flags, or if the output file cannot be written.
func (c *chooseCmd) validate() error {
	switch {
	case c.Ranks < 1 || c.Ranks > maxRanks:
		return usage("--ranks %d: give 1 to %d", c.Ranks, maxRanks)
	case c.Stages < 0 || c.Stages > schedule.MaxStages:
		return usage("--stages %d: give 1 to %d", c.Stages, schedule.MaxStages)
	case c.Microbatches < 1 || c.Microbatches > schedule.MaxMicrobatches:
		return usage("--microbatches %d: give 1 to %d", c.Microbatches, schedule.MaxMicrobatches)
	case c.Capacity < schedule.Unlimited:
		return usage("--capacity %d: give 0 or more, or -1 for no limit", c.Capacity)
	case c.FarShared < 1 || c.FarShared > maxRanks:
		return usage("--far-shared %d: give 1 to %d", c.FarShared, maxRanks)
	case c.Cap != nil && !(*c.Cap > 0 && *c.Cap <= 1e6):
		return usage("--cap %v: give more than 0 microbatches, up to 1000000", *c.Cap)
	}
	if err := c.replicaFlags.validate(); err != nil || c.Output == "" {
		return err
	}
	if err := endsIn(c.Output, ".json"); err != nil {
		return err
	}
	return atomicfile.Writable(c.Output) // check before the work starts
}

// none returns an error that says that no plan fits and names the smallest one, or that no schedule can run.
func (c *chooseCmd) none(choice *choose.Choice, costs *simulate.Costs, memory int64) error {
	smallest := choice.Smallest()
	if smallest == nil {
		return faults{{Text: "weir: no schedule runs on these ranks and stages"}}
	}
	room := amount(costs, memory)
	if c.Cap != nil {
		room = number(*c.Cap) + " mb"
	}
	return faults{{Text: fmt.Sprintf("weir: no plan fits into %s: the smallest is %s, which needs %s on a rank",
		room, smallest.Name(), amount(costs, smallest.Peak))}}
}

// amount formats bytes, or microbatches if the flags use them as the unit.
func amount(costs *simulate.Costs, bytes int64) string {
	if costs.Microbatch > 0 {
		return number(float64(bytes)/float64(costs.Microbatch)) + " mb"
	}
	return units.Size(bytes)
}

// costs returns the costs of the stages, and sets c.Stages if it was not given.
func (c *chooseCmd) costs() (*simulate.Costs, error) {
	if c.Costs != "" {
		costs, err := c.fromFile(cmp.Or(c.Stages, 2*c.Ranks))
		err = cmp.Or(err, c.ofProfile())
		if err == nil && c.Stages == 0 {
			if c.Stages = len(costs.Stages); c.Stages == 1 {
				c.Stages = 2 * c.Ranks
			}
		}
		if err == nil {
			costs, err = c.measure(costs)
		}
		if err == nil && c.FarRate != 0 {
			costs.FarPerMiB, err = perMiB(costs, "--far-rate", float64(c.FarRate)/float64(c.FarShared))
		}
		return costs, err
	}
	if err := c.needFile(); err != nil {
		return nil, err
	}
	if c.Far != 0 || c.FarRate != 0 {
		return nil, usage("--far and --far-rate count bytes: give --costs with the bytes of each stage, or --far-time")
	}
	if c.Memory != 0 {
		return nil, usage("--memory counts bytes: give --costs with the bytes of each stage, or --cap in microbatches")
	}
	if c.Stages == 0 {
		c.Stages = 2 * c.Ranks
	}
	if c.Stages%c.Ranks != 0 {
		return nil, usage("--stages %d on --ranks %d: the times of the flags are per rank, so give a multiple, or --costs", c.Stages, c.Ranks)
	}
	return c.uniform(schedule.Looped(c.Ranks, c.Stages))
}

// measure returns the costs of a file with the sizes that measure the memory of a plan: the file's bytes, or,
// if the file has none, as in the costs of a trace, a size of one for each microbatch.
func (c *chooseCmd) measure(costs *simulate.Costs) (*simulate.Costs, error) {
	saves, sizes := costs.HasRates(), slices.ContainsFunc(costs.Resident, func(bytes int64) bool { return bytes > 0 })
	for _, s := range costs.Stages {
		saves = saves || s.Saved+s.Carry > 0
		sizes = sizes || s.Resident+s.Weights+s.Gradients+s.Optimizer+s.ForwardWeights+s.BackwardWeights > 0
	}
	switch {
	case !saves && c.Memory+c.Far > 0:
		return nil, usage("--memory and --far count bytes, and no stage in %s has saved bytes, so that every plan would fit: add them, or give --cap in microbatches", c.Costs)
	case (saves || sizes) && costs.Microbatch == 0 && c.Cap != nil:
		return nil, usage("--cap counts microbatches, and the sizes in %s are bytes: give --memory", c.Costs)
	case saves || sizes:
		return costs, nil
	}
	counting := withStages(costs, func(s *simulate.StageCosts) { s.Saved = 2 * int64(c.Ranks) })
	counting.Microbatch = 2 * int64(c.Stages)
	return counting, nil
}

// perMiB returns the time to send a MiB, in ticks of the costs (1/Scale of their Unit), at a rate in bytes per
// second. Its errors name the flag that gave the rate.
func perMiB(costs *simulate.Costs, flag string, bytes float64) (int64, error) {
	seconds, known := map[string]float64{"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1}[costs.Unit]
	if !known {
		return 0, usage("%s: the unit of the costs is %q: give costs in ns, us, ms or s", flag, costs.Unit)
	}
	const coarsest = 20
	steps := math.Ceil((1 << 20) / bytes / seconds * float64(max(costs.Scale, 1)))
	if steps < coarsest {
		return 0, usage("%s: a MiB takes %.0f steps of the costs' time, which is too coarse: give costs with a larger scale, or in a smaller unit", flag, steps)
	}
	return int64(steps), nil
}

func (c *chooseCmd) outcome(choice *choose.Choice, costs *simulate.Costs) *chosen {
	out := &chosen{Layers: c.layersByStage(), Front: []string{}, Candidates: []candidate{}}
	if choice.Best != nil {
		out.Best = choice.Best.Name()
	}
	for _, f := range choice.Front {
		out.Front = append(out.Front, f.Name())
	}
	for _, one := range choice.All {
		line := candidate{Name: one.Name(), Fits: one.Fits, Front: one.Front}
		if one.Refused != nil {
			line.Refused = plain(one.Refused)
		} else {
			line.Makespan, line.BubbleMakespan = costs.Units(one.Report.Makespan), one.Report.BubbleMakespan()
			if line.Gathered, line.GatheredBy = one.Gathered, one.GatheredBy; costs.Replicas > 1 {
				line.Step = costs.Units(one.Report.Step)
			}
			line.Span, line.BubbleSpan = costs.Units(one.Report.Span), one.Report.BubbleSpan()
			line.IdleMakespan, line.IdleSpan = one.Report.Idle(one.Report.Makespan), one.Report.Idle(one.Report.Span)
			if costs.Microbatch > 0 {
				line.Peak, line.FarPeak = float64(one.Peak)/float64(costs.Microbatch), float64(one.FarPeak)/float64(costs.Microbatch)
			} else {
				line.PeakBytes, line.FarPeakBytes = one.Peak, one.FarPeak
			}
		}
		out.Candidates = append(out.Candidates, line)
	}
	return out
}

// table prints the choice as text.
func (c *chooseCmd) table(w io.Writer, choice *choose.Choice, costs *simulate.Costs) {
	layersLine(w, c.layersByStage())
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	clock, replicas := c.Clock, costs.Replicas > 1 && c.Clock != "span"
	if replicas {
		clock = "step"
	}
	if costs.Unit != "" {
		clock += ", " + costs.Unit
	}
	heads, left, gathers := "", 0, 0
	if slices.ContainsFunc(choice.All, (*choose.Candidate).Offloads) {
		heads = "\tfar peak"
	}
	fmt.Fprintf(t, "\tschedule\t%s\tbubble\tidle\tpeak%s\n", clock, heads)
	for _, one := range choice.All {
		if one.Refused != nil {
			continue
		}
		if one.Offloads() && !one.Front { // there may be hundreds
			left++
			continue
		}
		if (one.Gathered != 0 || one.GatheredBy != nil) && c.Gathered == 0 && !one.Front { // there may be hundreds of these, too
			gathers++
			continue
		}
		mark := ""
		switch {
		case one == choice.Best:
			mark = "best"
		case one.Front:
			mark = "front"
		case !one.Fits:
			mark = "too large"
		}
		time, bubble := one.Report.Makespan, one.Report.BubbleMakespan()
		if c.Clock == "span" {
			time, bubble = one.Report.Span, one.Report.BubbleSpan()
		} else if replicas {
			time = one.Report.Step
			bubble = 1 - float64(one.Report.Ideal)/float64(max(time, 1))
		}
		far := ""
		if one.Offloads() {
			far = "\t" + amount(costs, one.FarPeak)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", mark, one.Name(), number(costs.Units(time)), units.Percent(bubble, 2), units.Percent(one.Report.Idle(time), 2), amount(costs, one.Peak)+far)
	}
	t.Flush()
	if left > 0 {
		fmt.Fprintf(w, "%d more plans that offload are beaten by these.\n", left)
	}
	if gathers > 0 {
		fmt.Fprintf(w, "%d more plans with weights gathered are beaten by these, or too large.\n", gathers)
	}
	for _, one := range choice.All {
		if one.Refused != nil {
			fmt.Fprintf(w, "not %s: %s\n", one.Name(), plain(one.Refused))
		}
	}
}
