package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/simulate"
	"github.com/weir-ml/weir/schedule/units"
	"github.com/weir-ml/weir/trainer/terminal"
)

// simCmd simulates a plan.
type simCmd struct {
	timedPlan
	JSON bool `help:"Print the outcome as JSON."`
}

// Help returns the text that is printed below the flags.
func (simCmd) Help() string {
	return `There are two clocks. The makespan is the time from the first start on any rank to the last end on any rank. The span is the longest time of a single rank, from its own first start to its own last end. A bubble is 1 - ideal/clock; ideal is the busiest rank's work.

Without --costs the unit of memory is a microbatch: its saved tensors in all stages that it visits on a rank. For the first figure W frees all of it; for the second I frees half.`
}

// simulated is the output of --json. Times are in the unit of the costs.
type simulated struct {
	Name           string          `json:"name"`
	Ranks          int             `json:"ranks"`
	Stages         int             `json:"stages"`
	Microbatches   int             `json:"microbatches"`
	Layers         []int           `json:"layers_by_stage,omitempty"` // of a profile
	Runtime        string          `json:"runtime"`
	Capacity       *int            `json:"capacity,omitempty"` // of the links, for a plan of weir with transfers
	Makespan       float64         `json:"makespan"`
	Span           float64         `json:"span"`
	Ideal          float64         `json:"ideal"`
	Replicas       int             `json:"replicas,omitempty"`
	Shard          int             `json:"shard,omitempty"`
	Step           float64         `json:"step,omitempty"` // with everything that replicas exchange
	BubbleMakespan float64         `json:"bubble_makespan"`
	BubbleSpan     float64         `json:"bubble_span"`
	FarPeak        []float64       `json:"far_peak_microbatches_by_rank,omitempty"`
	Peak           []float64       `json:"peak_microbatches_by_rank,omitempty"`
	PeakIHalf      []float64       `json:"peak_microbatches_i_half_by_rank,omitempty"`
	PerRank        []simulatedRank `json:"per_rank"`
	Critical       int             `json:"critical_path_stretches"`
}

type simulatedRank struct {
	First         float64          `json:"first"`
	Last          float64          `json:"last"`
	Busy          float64          `json:"busy"`
	Wait          float64          `json:"wait"`
	Communication float64          `json:"communication"`
	Copies        float64          `json:"copies,omitempty"` // the part of Wait for copies to and from far memory
	PeakBytes     int64            `json:"peak_bytes,omitempty"`
	PeakAt        string           `json:"peak_at"`
	PeakPosition  int64            `json:"peak_position"`
	FarPeakBytes  int64            `json:"far_peak_bytes,omitempty"`
	PeakByClass   map[string]int64 `json:"peak_by_class,omitempty"`
	Exchanged     *exchanged       `json:"exchanged,omitempty"`
}

// exchanged holds the times of the transfers between a rank's replicas. Waits are the times that no
// computation hides.
type exchanged struct {
	Unshards      int64   `json:"unshards"`
	GatheredBytes int64   `json:"gathered_bytes"`
	GatherWait    float64 `json:"gather_wait"`
	ReducedBytes  int64   `json:"reduced_bytes"`
	Reducing      float64 `json:"reducing"`
	ReduceWait    float64 `json:"reduce_wait"`
}

// Run prints the outcome.
func (c *simCmd) Run(s *streams) error {
	plan, costs, err := c.provenPlan(s)
	if err != nil {
		return err
	}
	r, err := simulate.Run(plan, costs, plan.Capacity)
	if err != nil {
		return err
	}
	out := newSimulated(plan, costs, r)
	out.Layers = c.layersByStage()
	if costs.Microbatch > 0 {
		half, err := simulate.Run(plan, withStages(costs, func(s *simulate.StageCosts) { s.FreedByI = s.Saved / 2 }), plan.Capacity)
		if err != nil {
			return err
		}
		for rank := range r.Ranks {
			out.Peak = append(out.Peak, float64(r.Ranks[rank].Peak)/float64(costs.Microbatch))
			if plan.OffloadSlots != nil {
				out.FarPeak = append(out.FarPeak, float64(r.Ranks[rank].FarPeak)/float64(costs.Microbatch))
			}
			out.PeakIHalf = append(out.PeakIHalf, float64(half.Ranks[rank].Peak)/float64(costs.Microbatch))
		}
	}
	if c.JSON {
		return printJSON(s.out, out)
	}
	out.table(s.text, r, costs)
	if lacksQuantize(plan, costs) {
		fmt.Fprintln(s.text, "\nThe costs give times for copies of weights, and this plan makes no copies: --quantize before-use does.")
	}
	return nil
}

// lacksQuantize reports whether the costs contain copies of weights that no action of the plan makes.
func lacksQuantize(plan *schedule.Plan, costs *simulate.Costs) bool {
	for stage := range plan.Placement.Stages() {
		if hasAction(plan, schedule.Quantize, stage) {
			return false
		}
	}
	return slices.ContainsFunc(costs.Stages, func(s simulate.StageCosts) bool {
		return s.Quantize+s.ForwardWeights+s.BackwardWeights > 0
	})
}

func newSimulated(plan *schedule.Plan, costs *simulate.Costs, r *simulate.Report) *simulated {
	out := &simulated{
		Name: plan.Name, Ranks: plan.Placement.Ranks, Stages: plan.Placement.Stages(), Microbatches: plan.Microbatches,
		Makespan: costs.Units(r.Makespan), Span: costs.Units(r.Span), Ideal: costs.Units(r.Ideal),
		BubbleMakespan: r.BubbleMakespan(), BubbleSpan: r.BubbleSpan(), Critical: len(r.Critical),
	}
	out.Runtime = plan.Runtime.String()
	if costs.Replicas > 1 {
		out.Replicas, out.Shard, out.Step = costs.Replicas, costs.Shard, costs.Units(r.Step)
	}
	if plan.Runtime == schedule.Weir && plan.HasTransfers() {
		out.Capacity = &plan.Capacity
	}
	for _, rank := range r.Ranks {
		one := simulatedRank{
			First: costs.Units(rank.First), Last: costs.Units(rank.Last), Busy: costs.Units(rank.Busy),
			Wait: costs.Units(rank.Wait), Communication: costs.Units(rank.Communication), Copies: costs.Units(rank.Copies),
			PeakAt: rank.PeakAt.String(), PeakPosition: rank.PeakPosition,
		}
		if rank.PeakPosition < 0 {
			one.PeakAt = ""
		}
		if costs.Microbatch == 0 {
			one.PeakBytes, one.FarPeakBytes = rank.Peak, rank.FarPeak
			one.PeakByClass = rank.Classes.Named()
		}
		if costs.Replicas > 1 {
			one.Exchanged = &exchanged{
				Unshards: rank.Unshards, GatheredBytes: rank.GatheredBytes, GatherWait: costs.Units(rank.GatherWait),
				ReducedBytes: rank.ReducedBytes, Reducing: costs.Units(rank.Reducing), ReduceWait: costs.Units(rank.ReduceWait),
			}
		}
		out.PerRank = append(out.PerRank, one)
	}
	return out
}

// table prints the outcome as text.
func (o *simulated) table(w io.Writer, r *simulate.Report, costs *simulate.Costs) {
	unit := costs.Unit
	if unit != "" {
		unit = " " + unit
	}
	meaning := ""
	switch {
	case o.Runtime != schedule.Weir.String():
		meaning = ", in " + o.Runtime
	case o.Capacity != nil && *o.Capacity == schedule.Unlimited:
		meaning = ", links without limit"
	case o.Capacity != nil:
		meaning = ", links of " + units.Number(*o.Capacity, "message")
	}
	fmt.Fprintf(w, "%s: %s, %s, %s%s\n", terminal.Quote(o.Name), units.Number(o.Ranks, "rank"), units.Number(o.Stages, "stage"), units.Number(o.Microbatches, "microbatch"), meaning)
	layersLine(w, o.Layers)
	fmt.Fprintln(w)
	fmt.Fprintf(w, "makespan %s%s   bubble %s   first start to last end over all ranks\n", number(o.Makespan), unit, units.Percent(o.BubbleMakespan, 2))
	fmt.Fprintf(w, "span     %s%s   bubble %s   the longest single rank\n", number(o.Span), unit, units.Percent(o.BubbleSpan, 2))
	fmt.Fprintf(w, "ideal    %s%s   the busiest rank's work\n", number(o.Ideal), unit)

	offloads := slices.ContainsFunc(r.Ranks, func(r simulate.RankReport) bool { return r.FarPeak > 0 })
	head := []string{"rank", "busy", "wait", "wire", "peak"}
	if o.Peak != nil {
		head = append(head[:4], "peak, mb", "I frees half")
	}
	if offloads {
		head = append(head, "far peak", "wait for copies")
	}
	rows := [][]string{append(head, "at")}
	for rank, one := range o.PerRank {
		row, far := []string{strconv.Itoa(rank), number(one.Busy), number(one.Wait), number(one.Communication)}, units.Size(one.FarPeakBytes)
		if o.Peak != nil {
			row, far = append(row, number(o.Peak[rank]), number(o.PeakIHalf[rank])), number(float64(r.Ranks[rank].FarPeak)/float64(costs.Microbatch))
		} else {
			row = append(row, units.Size(one.PeakBytes))
		}
		if offloads {
			row = append(row, far, number(one.Copies))
		}
		rows = append(rows, append(row, one.PeakAt))
	}
	printRight(w, rows)
	o.exchanges(w, unit)
	o.critical(w, r, costs, unit)
}

// exchanges prints the data that replicas exchange.
func (o *simulated) exchanges(w io.Writer, unit string) {
	if o.Replicas < 2 {
		return
	}
	fmt.Fprintf(w, "\n%s, shard level %d: step %s%s, with everything that they exchange\n", units.Number(o.Replicas, "replica"), o.Shard, number(o.Step), unit)
	rows := [][]string{{"rank", "unshards", "gathered", "waits for weights", "reduced", "reducing", "hidden"}}
	for rank := range o.PerRank {
		x, hidden := o.PerRank[rank].Exchanged, "-"
		if x.Reducing > 0 {
			hidden = units.Percent(max(1-x.ReduceWait/x.Reducing, 0), 1)
		}
		rows = append(rows, []string{strconv.Itoa(rank), fmt.Sprint(x.Unshards), units.Size(x.GatheredBytes), number(x.GatherWait), units.Size(x.ReducedBytes), number(x.Reducing), hidden})
	}
	printRight(w, rows)
}

// maxStretches is the largest number of stretches of the critical path that are printed.
const maxStretches = 12

// critical prints the critical path.
func (o *simulated) critical(w io.Writer, r *simulate.Report, costs *simulate.Costs, unit string) {
	if len(r.Critical) == 0 {
		return
	}
	fmt.Fprintf(w, "\nThe critical path, %s; a shorter step needs a shorter path:\n", units.Number(len(r.Critical), "stretch"))
	for i, s := range r.Critical {
		if i == maxStretches {
			fmt.Fprintf(w, "  and %d more\n", len(r.Critical)-i)
			return
		}
		fmt.Fprintf(w, "  %s to %s%s  rank %d, actions %d to %d\n", number(costs.Units(s.Start)), number(costs.Units(s.End)), unit, s.Rank, s.First, s.Last)
	}
}

// number formats a number with at most four decimals.
func number(v float64) string { return units.Decimal(v, 4) }
