package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"github.com/weir-ml/weir/cmd/weir/internal/fit"
	"github.com/weir-ml/weir/internal/placement/minimalloc"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/memory/placement"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/layout"
	"github.com/weir-ml/weir/schedule/lower"
	"github.com/weir-ml/weir/schedule/simulate"
	"github.com/weir-ml/weir/schedule/units"
	"github.com/weir-ml/weir/trainer/atomicfile"
	"github.com/weir-ml/weir/trainer/terminal"
)

// layoutFlags holds the flags of a plan whose memory is laid out.
type layoutFlags struct {
	pricedPlan
	Profile   string `group:"Memory:" help:"File with the allocations of the stages (examples/train -emit-profile writes one); without it the bytes of --costs are used, which have no workspaces." placeholder:"FILE"`
	LookAhead int    `help:"Entries that a rank pulls before it needs them." placeholder:"N"`
	Envelope  bool   `help:"Plan for microbatches of any shape class of the profile: each buffer has its largest size over the classes. This is the default if there are several classes and no --shapes."`
	Shapes    []int  `help:"The shape class of each microbatch, from 0; a list shorter than the step repeats." placeholder:"N"`
	Work      int64  `help:"Limit on the work of the search on each rank, in buffers placed." placeholder:"N"`
}

// passes returns the passes that a plan needs before it can run, given the profile's facts about the
// stages.
func (c *layoutFlags) passes(place schedule.Placement, profile *layout.Profile) (lower.Passes, error) {
	facts, parts := slices.Clone(profile.StageInfo), len(profile.Parts)
	depth, stages := place.Depth(), len(profile.Shapes[0].Stages)
	if stages != depth && stages != place.Stages() {
		return lower.Passes{}, c.misfitError(place, stages)
	}
	if len(facts) == 0 {
		facts = slices.Repeat([]schedule.StageInfo{{Split: true}}, place.Stages())
	}
	if len(facts) == depth {
		facts = slices.Repeat(facts, place.Stages()/depth)
	}
	if len(facts) != place.Stages() {
		return lower.Passes{}, inFile(c.Profile, fmt.Errorf("the file has facts about %d stages, but its profile has %d", len(facts), stages))
	}
	copies := false
	for s := range facts {
		copies = copies || facts[s].Quantizes
	}
	if c.quantizes() && !copies && c.Profile == "" {
		return lower.Passes{}, usage("--quantize: the costs have no copies of weights: give a stage forward_weights and backward_weights in bytes")
	}
	if c.quantizes() && !copies {
		return lower.Passes{}, usage("--quantize: no stage of %s computes on copies of its weights", c.Profile)
	}
	passes := lower.Passes{StageInfo: facts, Parts: parts, Quantizing: c.quantizing(), Capacity: or(c.Capacity, defaultLinks)}
	return passes, c.planFlags.passes(&passes)
}

// step is a plan and everything that its layout depends on.
type step struct {
	plan    *schedule.Plan
	profile *layout.Profile
	costs   *simulate.Costs // of the file; nil if none is given
	times   *simulate.Costs // costs, or the costs given by flags
	cfg     layout.Config
	near    []layout.NearSlots // of the stages that the flags offload

	gradients []fit.Gradients // of the stages of costs, or nil if the plan makes them
}

// prepare reads the files that the flags name, and makes the plan and the configuration of its layout.
func (c *layoutFlags) prepare(s *streams) (*step, error) {
	if c.Work < 0 || c.LookAhead < 0 {
		return nil, usage("--work and --look-ahead: give 0 or more")
	}
	out := &step{}
	if c.Profile != "" {
		t, err := c.profile(nil, nil)
		if err != nil {
			return nil, err
		}
		if named, err := schedule.Find(c.Plan); err == nil && c.Stages == nil { // as many stages as the profile has
			stages := len(t.Shapes[0].Stages)
			if _, err := named.Place(or(c.Ranks, usualRanks), stages); !c.listed() && (err == nil || c.Placement != "") {
				c.Stages = &stages
			}
		}
		out.profile = t
	}
	if err := c.countLengths(); err != nil {
		return nil, err
	}
	plan, file, err := c.load(s)
	if err != nil {
		return nil, err
	}
	if file != nil {
		if _, err := prove(plan, file, schedule.Unlimited); err != nil {
			return nil, err
		}
		if plan, err = lower.ForRuntime(schedule.Weir, plan, or(c.Capacity, defaultLinks)); err != nil { // the runtime whose memory is laid out
			return nil, err
		}
	}
	if out.times, err = c.price(plan.Placement, file); err != nil {
		return nil, err
	}
	if file == nil && c.Replicas == 0 && out.times.Replicas > 1 { // the file's replicas exchange gradients too
		c.Replicas, c.Shard = out.times.Replicas, out.times.Shard
		if plan, _, err = c.load(s); err != nil {
			return nil, err
		}
	}
	out.times = c.apply(out.times)
	if out.times.Microbatch == 0 { // its sizes are bytes
		out.costs = out.times
	}
	if out.profile == nil {
		if out.profile, err = c.profile(plan, out.costs); err != nil {
			return nil, err
		}
	}
	out.gradients = c.gradients(out)
	passes, err := c.passes(plan.Placement, out.profile)
	if err != nil {
		return nil, err
	}
	if plan.HasTransfers() {
		passes.Capacity = or(c.Capacity, plan.Capacity)
	}
	for s := range passes.StageInfo { // a file may have copies that the profile lacks
		passes.StageInfo[s].Quantizes = passes.StageInfo[s].Quantizes || hasAction(plan, schedule.Quantize, s)
	}
	if passes.OffloadSlots, err = c.away(plan); err != nil {
		return nil, err
	}
	if passes.Overlap = c.Overlap; passes.OffloadSlots != nil {
		slots := out.profile.OffloadSlots(&plan.Placement, 1)
		for s := range passes.OffloadSlots {
			passes.OffloadSlots[s] = slots[s] * min(passes.OffloadSlots[s], 1)
		}
		out.near = slices.DeleteFunc(out.profile.NearSlots(&plan.Placement, 1), func(n layout.NearSlots) bool { return passes.OffloadSlots[n.Stage] == 0 })
	}
	if out.plan, err = lower.Prepare(plan, passes); err != nil {
		if errors.Is(err, schedule.ErrStageInfo) && c.Profile != "" && file == nil { // a plan made by name is not at fault
			return nil, inFile(c.Profile, err)
		}
		return nil, err
	}
	if err := c.sharded(out); err != nil {
		return nil, err
	}
	envelope := c.Envelope || len(c.Shapes) == 0 && len(out.profile.Shapes) > 1 && c.Profile != ""
	out.cfg = layout.Config{LookAhead: c.LookAhead, Envelope: envelope, Replicas: c.Replicas, Search: placement.Options{Nodes: c.Work}}
	if out.costs != nil {
		out.cfg.Resident = func(place schedule.Placement, rank int) int64 {
			if out.costs.Resident != nil && rank >= len(out.costs.Resident) {
				return 0 // the plan has more ranks than the costs, so it cannot be timed either
			}
			return out.costs.ResidentOf(place, rank)
		}
	}
	if c.Profile == "" && len(out.profile.Shapes) > 1 {
		if out.cfg.Shapes, err = shapesOf(out.plan, out.costs); err != nil || len(c.Shapes) == 0 {
			return out, err
		}
		return nil, usage("--shapes: the costs have the lengths of the microbatches: leave out the flag")
	}
	if len(c.Shapes) > 0 {
		const most = 1 << 23
		if out.plan.Microbatches > most {
			return nil, usage("--shapes for a step of %d microbatches: at most %d are allowed; give fewer microbatches, or leave out --shapes and plan for any shape", out.plan.Microbatches, most)
		}
		for _, shape := range c.Shapes {
			if shape < 0 || shape >= len(out.profile.Shapes) {
				return nil, usage("--shapes %d: the profile has shape classes 0 to %d", shape, len(out.profile.Shapes)-1)
			}
		}
		out.cfg.Shapes = make([]int, out.plan.Microbatches)
		for m := range out.cfg.Shapes {
			out.cfg.Shapes[m] = c.Shapes[out.plan.BatchIndex(m)%len(c.Shapes)]
		}
	}
	return out, nil
}

// gradients returns the gradients of a step's costs, by stage of the costs, or nil if the plan makes them.
func (c *layoutFlags) gradients(step *step) (all []fit.Gradients) {
	if step.costs == nil || step.costs.Shard >= schedule.ShardGradients {
		return nil
	}
	if p := c.profiled; p != nil && c.Profile == "" && c.Lengths == "" {
		return p.pieces.Gradients(p.setup, p.cut, step.profile)
	}
	for i := range step.costs.Stages {
		all = append(all, fit.Gradients{Parts: []int64{step.costs.Stages[i].Gradients}})
	}
	return all
}

// sharded returns an error if the plan makes whole gradients or gathers weights, but the profile does not
// describe them.
func (c *layoutFlags) sharded(step *step) error {
	if c.Profile == "" {
		return nil
	}
	for stage := range step.plan.Placement.Depth() {
		if profile := &step.profile.Shapes[0].Stages[stage]; profile.Gather != nil || profile.ZeroGrad != nil {
			return nil
		}
	}
	for stage := range step.plan.Placement.Stages() {
		for _, kind := range []schedule.Kind{schedule.ZeroGrad, schedule.Unshard} {
			if hasAction(step.plan, kind, stage) {
				return inFile(c.Profile, fmt.Errorf("the plan has %v, but no stage of the profile has zero_grad or gather: write the profile again with examples/train -emit-profile", kind))
			}
		}
	}
	return nil
}

// layOut returns the plan and its layout.
func (c *layoutFlags) layOut(s *streams) (*schedule.Plan, *layout.Memory, error) {
	step, err := c.prepare(s)
	if err != nil {
		return nil, nil, err
	}
	made, err := layout.Make(context.Background(), step.plan, step.profile, step.cfg)
	return step.plan, made, c.layoutError(err)
}

// memPlanCmd lays out the memory of a plan.
type memPlanCmd struct {
	layoutFlags
	Memory size   `help:"Bytes of a rank, such as 80G, for a step and for the resident bytes of the costs; a plan that needs more is refused, and the error names plans that fit." placeholder:"BYTES"`
	WhatIf bool   `help:"Print bytes and time for fewer microbatches in flight, stages that recompute, more and smaller microbatches, more ranks, and some combinations of these. Times are those of --costs, or of --f, --i and --w."`
	Less   string `name:"recompute" help:"A profile of the same stages that recompute, for --what-if." placeholder:"FILE" needs:"what-if memory"`
	CSV    string `name:"csv" help:"Write the buffers of --rank in MiniMalloc's CSV, for weir place." placeholder:"FILE"`
	Rank   int    `help:"The rank of --csv." needs:"csv"`
	JSON   bool   `help:"Print the certificates as JSON."`
}

// Help returns the text that is printed below the flags.
func (memPlanCmd) Help() string {
	return `Lays out the memory of a step before it runs. The certificate of a rank has the height of the layout, the bound, which is the largest number of requested bytes alive at once in the whole step, and the gap between the two. No layout is lower than the bound, so a gap of 0 proves that the layout is optimal.`
}

// Run plans and prints the certificates.
func (c *memPlanCmd) Run(s *streams) error {
	if flag := c.timed(); flag != "" && c.Profile != "" && !c.WhatIf && c.Memory == 0 {
		return usage("%s: a layout depends on no time, only --what-if and --memory print times: leave it out", flag)
	}
	step, err := c.prepare(s)
	if err != nil {
		return err
	}
	ctx := context.Background()
	var others []layout.Alternative
	if c.WhatIf && step.cfg.Shapes != nil && c.Profile == "" {
		return usage("--what-if: it changes the number of microbatches, and the costs have the length of each: leave out one of the two")
	}
	if (c.Memory > 0 || c.WhatIf) && (step.cfg.Shapes == nil || c.Profile != "") {
		if others, err = c.alternatives(step); err != nil {
			return err
		}
	}
	step.cfg.Budget = int64(c.Memory)
	made, err := layout.Make(ctx, step.plan, step.profile, step.cfg)
	step.cfg.Budget = 0
	if errors.Is(err, layout.ErrBudget) {
		return c.refusal(ctx, step, others, err)
	}
	if err != nil {
		return c.layoutError(err)
	}
	if c.CSV != "" {
		if err := c.export(made); err != nil {
			return err
		}
	}
	out := newCertificates(step, made)
	out.Layers = c.layersByStage()
	if c.WhatIf {
		asItIs := layout.Alternative{Name: "as it is", Bytes: made.Total(), Plan: step.plan}
		if out.WhatIf, err = c.whatIf(ctx, step, asItIs, others); err != nil {
			return err
		}
	}
	if c.JSON {
		return printJSON(s.out, out)
	}
	out.table(s.text)
	return nil
}

// export writes the placement instance of a rank.
func (c *memPlanCmd) export(made *layout.Memory) error {
	if c.Rank < 0 || c.Rank >= len(made.Ranks) {
		return usage("--rank %d: ranks are 0 to %d", c.Rank, len(made.Ranks)-1)
	}
	r := &made.Ranks[c.Rank]
	return atomicfile.Write(c.CSV, func(w io.Writer) error {
		return minimalloc.Write(w, &minimalloc.Instance{Problem: *r.Problem, Offsets: r.Offsets})
	})
}

// certificates is the output of --json.
type certificates struct {
	Name         string        `json:"name"`
	Ranks        int           `json:"ranks"`
	Stages       int           `json:"stages"`
	Microbatches int           `json:"microbatches"`
	Layers       []int         `json:"layers_by_stage,omitempty"` // of a profile
	Sizes        string        `json:"sizes"`
	PerRank      []certificate `json:"per_rank"`
	WhatIf       []alternative `json:"what_if,omitempty"`
	Near         []string      `json:"kept_near,omitempty"` // stages with slots that cannot be offloaded

	unit string
}

type certificate struct {
	Height   int64            `json:"height"`
	Resident int64            `json:"resident,omitempty"` // outside the step
	Total    int64            `json:"total"`              // the sum of both
	AtOnce   int64            `json:"at_once"`            // the largest number of live bytes, with gradients as in PyTorch
	Bound    int64            `json:"bound"`
	Gap      float64          `json:"gap"`
	Optimal  bool             `json:"optimal"`
	Buffers  int              `json:"buffers"`
	Far      int64            `json:"far_height,omitempty"` // of the layout of far memory
	Method   string           `json:"method"`
	Proof    string           `json:"proof,omitempty"`
	Classes  map[string]int64 `json:"peak_by_class"`
	Owners   []owner          `json:"owners_at_peak"`
}

type owner struct {
	Name  string `json:"name"`
	Class string `json:"class"`
	Count int    `json:"count"`
	Bytes int64  `json:"bytes"`
	First *int   `json:"first_microbatch,omitempty"`
	Last  *int   `json:"last_microbatch,omitempty"`
}

func newCertificates(step *step, made *layout.Memory) *certificates {
	p := step.plan
	out := &certificates{Name: p.Name, Ranks: p.Placement.Ranks, Stages: p.Placement.Depth(), Microbatches: p.Microbatches, Sizes: made.Ranks[0].Sizes}
	out.unit = step.times.Unit
	for _, near := range step.near {
		out.Near = append(out.Near, near.String())
	}
	for i := range made.Ranks {
		r := &made.Ranks[i]
		one := certificate{
			Height: r.Height, Bound: r.Bound, Gap: r.Gap(), Optimal: r.Optimal, Buffers: r.Buffers, Method: r.Method, Proof: r.Proof,
			Classes: r.Peak.Classes.Named(), Owners: []owner{},
		}
		if r.Far != nil {
			one.Far = r.Far.Height
		}
		if step.cfg.Resident != nil {
			one.Resident = step.cfg.Resident(p.Placement, i)
		}
		one.Total, one.AtOnce = one.Height+one.Resident, step.atOnce(made, i, one.Resident)
		for _, o := range r.Peak.Owners {
			who := owner{Name: o.Name, Class: o.Class.String(), Count: o.Count, Bytes: o.Bytes}
			if o.First >= 0 {
				who.First, who.Last = new(o.First), new(o.Last)
			}
			one.Owners = append(one.Owners, who)
		}
		out.PerRank = append(out.PerRank, one)
	}
	return out
}

// atOnce returns the maximum number of live bytes of a rank, including resident ones, if the gradients of a
// stage appear with its first B or W, as in PyTorch.
func (s *step) atOnce(made *layout.Memory, rank int, resident int64) int64 {
	for _, stage := range s.plan.Placement.On(rank) {
		if s.gradients != nil {
			resident -= s.costs.Of(stage).Gradients
		}
	}
	peak := fit.PeakWith(s.gradients, s.plan, made, rank)
	return resident + peak.Classes.Total()
}

// maxOwners is the largest number of owners at the peak of a rank that are printed.
const maxOwners = 5

// table prints the certificates as text.
func (o *certificates) table(w io.Writer) {
	fmt.Fprintf(w, "%s: %s, %s, %s; sizes: %s\n", terminal.Quote(o.Name), units.Number(o.Ranks, "rank"), units.Number(o.Stages, "stage"), units.Number(o.Microbatches, "microbatch"), o.Sizes)
	layersLine(w, o.Layers)
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "rank\theight\tbound\tgap\tproven\tbuffers\tfound by")
	for rank, r := range o.PerRank {
		proven := "bounded"
		if r.Optimal {
			proven = "optimal"
		}
		fmt.Fprintf(t, "%d\t%s\t%s\t%s\t%s\t%d\t%s\n", rank, units.Count(r.Height), units.Count(r.Bound), units.Percent(r.Gap, 2), proven, r.Buffers, r.Method)
	}
	t.Flush()
	o.residentTable(w)
	for rank, r := range o.PerRank {
		fmt.Fprintf(w, "\nrank %d at its peak:", rank)
		sep := " "
		for class := range memory.NumClasses {
			name := memory.Class(class).String()
			if bytes := r.Classes[name]; bytes > 0 {
				fmt.Fprintf(w, "%s%s %s", sep, name, units.Size(bytes))
				sep = ", "
			}
		}
		if r.Far > 0 {
			fmt.Fprintf(w, "; far memory %s", units.Size(r.Far))
		}
		fmt.Fprintln(w)
		for i, one := range r.Owners {
			if i == maxOwners {
				fmt.Fprintf(w, "  and %d more\n", len(r.Owners)-i)
				break
			}
			fmt.Fprintf(w, "  %9s  %s, %s", units.Size(one.Bytes), one.Name, one.Class)
			if one.First != nil {
				fmt.Fprintf(w, ", %s", microbatches(one))
			}
			fmt.Fprintln(w)
		}
	}
	for _, near := range o.Near {
		fmt.Fprintf(w, "\n%s\n", near)
	}
	o.whatIf(w)
}

// residentTable prints the resident bytes of ranks, if the costs have any.
func (o *certificates) residentTable(w io.Writer) {
	if !slices.ContainsFunc(o.PerRank, func(r certificate) bool { return r.Resident > 0 }) {
		return
	}
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "rank\tstep\tresident\ttotal\tat once")
	for rank, r := range o.PerRank {
		fmt.Fprintf(t, "%d\t%s\t%s\t%s\t%s\n", rank, units.Count(r.Height), units.Count(r.Resident), units.Count(r.Total), units.Count(r.AtOnce))
	}
	t.Flush()
}

// microbatches names the microbatches of an owner.
func microbatches(o owner) string {
	if *o.First == *o.Last {
		return fmt.Sprintf("microbatch %d", *o.First)
	}
	return fmt.Sprintf("%d of microbatches %d to %d", o.Count, *o.First, *o.Last)
}
