package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/weir-ml/weir/cmd/weir/internal/fit"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/format"
	"github.com/weir-ml/weir/schedule/units"
)

// best searches for the fastest options and prints the Pareto front. If name is not empty, it searches only
// that schedule.
func (c *fitCmd) best(s *streams, r *fit.Request, name string) error {
	var only []string
	if c.To == "layout" { // only schedules that Megatron-LM runs
		only = []string{"1f1b", "interleaved"}
	}
	if named, err := schedule.Find(name); err == nil {
		if only != nil && !slices.Contains(only, named.Name) {
			return usage("--to layout: Megatron-LM has no schedule %s: give 1f1b or interleaved, or leave out --schedule", name)
		}
		only = []string{named.Name}
	} else if name != "" {
		return usage("--best makes plans itself, and %s is a plan file: give the name of a schedule, or leave out --schedule", name)
	}
	switch {
	case r.Model == nil && r.Pieces == nil || r.Profile != nil:
		return usage("--best takes formulas: leave out --profile and --costs")
	case r.Pieces != nil && c.FarRate > 0:
		return usage("--far-rate takes the tensors of formulas, and %s has sums: leave it out", c.Config[0])
	case c.Layers != nil || c.Stages != nil:
		return usage("--best looks for stages and layers itself: leave out --stages and --layers")
	case c.RecomputeStages != nil:
		return usage("--best looks for stages itself: leave out --recompute-stages")
	case r.Offload > 0:
		return usage("--best looks for tensors to offload itself: give --far-rate, and leave out --offload")
	case !(c.Teraflops > 0 && c.Teraflops < 1e6):
		return usage("--teraflops %g: give a number above 0 and below 1000000", c.Teraflops)
	case c.SearchTime < 0:
		return usage("--search-time is %v: give 0s or more", c.SearchTime)
	}
	search := fit.Search{
		Model: r.Model, Pieces: r.Pieces, Setup: r.Setup, Ranks: r.Plan.Placement.Ranks, Sequences: r.Plan.Microbatches * max(r.Setup.Microbatch, 1), Memory: int64(c.Memory),
		Speed: 1e12 * c.Teraflops, Bandwidth: float64(c.LinkRate), FarRate: float64(c.FarRate), Capacity: c.Capacity, Deadline: time.Now().Add(c.SearchTime),
		FixedMicrobatch: c.MicrobatchSize > 0, FixedRecompute: c.Recompute != "", Only: only,
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.SearchTime+c.TimeLimit)
	defer cancel()
	front, tried, all, err := fit.Best(ctx, search)
	switch {
	case err != nil:
		return c.refused(err)
	case len(front) == 0:
		text := fmt.Sprintf("weir: none of %s of stages, recompute and microbatch sizes gives a plan that fits into %s", units.Number(tried, "combination"), units.Size(int64(c.Memory)))
		if tried < all {
			text += fmt.Sprintf("; %d more were not tried: give a longer --search-time", all-tried)
		}
		return faults{{Text: text}}
	case c.To != "report":
		r.Setup.Microbatch = front[0].Microbatch
		return c.write(s, r, front[0].Cut, front[0].Plan)
	case c.JSON:
		return printJSON(s.out, &searched{front, tried, all})
	}
	c.front(s.text, front, tried, all)
	return nil
}

// searched is the output of --best --json.
type searched struct {
	Front        []fit.Option `json:"front"`
	Tried        int          `json:"tried"`
	Combinations int          `json:"combinations"`
}

// front prints the options for people.
func (c *fitCmd) front(w io.Writer, front []fit.Option, tried, all int) {
	fmt.Fprintf(w, "%d of %s of stages, recompute and microbatch sizes were tried\n\n", tried, units.Number(all, "combination"))
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	far := func(text string) string { return text }
	if c.FarRate == 0 {
		far = func(string) string { return "" }
	}
	fmt.Fprintln(t, "step\tpeak\t"+far("far\toffload\t")+"schedule\tstages\tmicrobatch\trecompute\tlayers by stage")
	for _, o := range front {
		fmt.Fprintf(t, "%s\t%s\t%s%s\t%d\t%d\t%s\t%s\n", units.Seconds(o.Seconds), units.Size(o.Peak), far(fmt.Sprintf("%s\t%g\t", units.Size(o.Far), o.Offload)), o.Name, o.Stages, o.Microbatch, o.Recompute, strings.Trim(fmt.Sprint(o.Cut), "[]"))
	}
	t.Flush()
	fmt.Fprintf(w, "\nTimes are simulated at %g * 10^12 operations a second and %g GB/s between ranks (--teraflops, --link-rate): they compare options, and predict no run.\n", c.Teraflops, float64(c.LinkRate)/1e9)
}

// write prints the cut or the plan for other programs.
func (c *fitCmd) write(s *streams, r *fit.Request, cut []int, plan *schedule.Plan) error {
	if c.To == "compute" {
		return format.Write(s.out, plan, format.Compute)
	}
	for stage, rank := range plan.Placement.Rank {
		if rank != stage%plan.Placement.Ranks || cut == nil {
			return usage("--to layout: Megatron-LM's layout is for stages that cycle through the ranks, and stage %d of %s is on rank %d: use 1f1b or interleaved", stage, plan.Name, rank)
		}
	}
	further := 0
	if r.Setup.Further {
		further = r.Model.MTP
	}
	fmt.Fprintln(s.out, fit.MegatronLayout(cut, further, r.Setup.FurtherStage))
	return nil
}
