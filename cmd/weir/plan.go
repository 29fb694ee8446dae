package main

import (
	"io"
	"os"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/format"
	"github.com/weir-ml/weir/schedule/lower"
)

// planCmd makes a plan.
type planCmd struct {
	Name string `arg:"" help:"The schedule: ${schedules}." predictor:"schedule"`
	making
	To       string `help:"compute: PyTorch's CSV of computations; comms: the same with transfers; order: signed order list; json, text: everything, drops included." aliases:"format" enum:"text,compute,comms,order,json" default:"text"`
	Capacity int    `help:"Messages that a link between ranks holds: 0 places transfers so that each send can meet its receive, which works with any; 1 or more receives as late as can be; -1 is no limit." default:"0" placeholder:"N"`
	Shard    int    `help:"Gather and give up sharded weights, at most so many stages at a time on a rank." placeholder:"N"`
	Reduce   bool   `help:"Reduce each stage's gradients over replicas after its last backward."`
	JSON     bool   `help:"The same as --to json."`
	Output   string `help:"File to write, or - for standard output." short:"o" placeholder:"FILE" default:"-"`
}

// Help is printed behind the flags.
func (planCmd) Help() string {
	return `In the text form one line is one segment: x, how often it runs, by how many microbatches it moves each time, and its actions; or, in parentheses, segments, for a loop of loops. 1B0~gs is stage 1, backward, microbatch 0, and drops g and s: p parts of the batch entry, i the stage's input, o its output, g the gradient of its output, s what was saved, t the buffer of a completed transfer, r the microbatch retires; f and b are the copies of the stage's weights that forwards and backwards read.

In the text and JSON forms the stages read the batch as a language model does: the first one part 0, the tokens, in its forward; the last one parts 1 and 2, labels and weights, in forward and backward.`
}

// Run prints the plan.
func (c *planCmd) Run(s *streams) error {
	plan, err := c.make(c.Name)
	if _, unknown := schedule.Find(c.Name); unknown != nil {
		if _, missing := os.Stat(c.Name); missing == nil || c.Name == "-" {
			return usage("plan makes a plan of a schedule's name; weir check, sim, draw and convert read %s", c.Name)
		}
	}
	if err != nil {
		return err
	}
	form, _ := format.Parse(c.To)
	if c.JSON {
		form = format.JSON
	}
	if form == format.Comms {
		plan.Runtime = schedule.PyTorch
	}
	if form != format.Compute && form != format.Order {
		if c.Capacity < schedule.Unlimited {
			return usage("--capacity %d: give 0 or more, or -1 for no limit", c.Capacity)
		}
		plan, err = lower.Prepare(plan, lower.Passes{
			Facts: languageModel(plan, c.quantizes()), Parts: 3, Shard: c.Shard, Quantizing: c.quantizing(), Reduce: c.Reduce,
			Capacity: c.Capacity, NoLifetimes: form == format.Comms,
		})
		if err != nil {
			return usage("%s: %s", c.Name, plain(err.Error()))
		}
	}
	return s.write(c.Output, func(w io.Writer) error { return format.Write(w, plan, form) })
}

// The parts of an entry of a language model, as sets.
const (
	tokens  = 1 << 0
	labels  = 1 << 1
	weights = 1 << 2
)

// languageModel returns the facts of stages of which the first one embeds tokens
// and the last one computes the loss.
func languageModel(plan *schedule.Plan, quantizes bool) []schedule.Facts {
	facts := make([]schedule.Facts, plan.Placement.Stages())
	for stage := range facts {
		facts[stage].Split = has(plan, schedule.W, stage)
		facts[stage].Quantizes = quantizes
		facts[stage].Frozen = stage < len(plan.Frozen) && plan.Frozen[stage]
		if plan.Placement.First(stage) {
			facts[stage].Reads[schedule.F] |= tokens
		}
		if plan.Placement.Last(stage) {
			for _, kind := range []schedule.Kind{schedule.F, schedule.B, schedule.I} {
				facts[stage].Reads[kind] |= labels | weights
			}
		}
	}
	return facts
}

// has reports whether the plan has an action of the kind of the stage.
func has(plan *schedule.Plan, kind schedule.Kind, stage int) bool {
	for a := range schedule.Written(plan.Programs[plan.Placement.Rank[stage]]) {
		if a.Kind() == kind && a.Stage() == stage {
			return true
		}
	}
	return false
}
