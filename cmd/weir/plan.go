package main

import (
	"fmt"
	"slices"

	"github.com/weir-ml/weir/schedule"
)

// planCmd makes a plan.
type planCmd struct {
	Schedule     string `help:"The order: depth-first takes one microbatch, or one group, through all stages before the next; breadth-first takes all of them through one stage before the next." enum:"depth-first,breadth-first" default:"depth-first"`
	Stages       int    `help:"Number of stages." required:"" placeholder:"N"`
	Microbatches int    `help:"Number of microbatches." required:"" placeholder:"M"`
	Group        int    `help:"Depth-first only: how many microbatches run together; 0 means 1." placeholder:"G"`
	ForwardOnly  bool   `help:"Evaluate: no backward."`
	Frozen       []int  `help:"Stages that do not train, from 0, separated by commas." placeholder:"S,..."`
}

// Help is printed behind the flags.
func (planCmd) Help() string {
	return `One line of the plan is one segment: x, how often it runs, by how many microbatches it moves each time, and its actions. 1B0~gs is stage 1, backward, microbatch 0, and drops g and s: p parts of the batch entry, i the stage's input, o its output, g the gradient of its output, s what was saved, r the microbatch retires.

The stages read the batch as a language model does: the first one part 0, the tokens, in its forward; the last one parts 1 and 2, labels and weights, in forward and backward.`
}

// rules are the schedules by name.
var rules = map[string]schedule.Rule{"depth-first": schedule.DepthFirst, "breadth-first": schedule.BreadthFirst}

// Run prints the plan.
func (c *planCmd) Run(s *streams) error {
	if c.Stages < 1 || c.Stages > schedule.MaxStages {
		return fmt.Errorf("--stages %d: there must be 1 to %d", c.Stages, schedule.MaxStages)
	}
	params := schedule.Params{Placement: schedule.Looped(1, c.Stages), Microbatches: c.Microbatches, Group: c.Group}
	if c.ForwardOnly {
		params.Mode = schedule.ForwardOnly
	}
	if len(c.Frozen) > 0 {
		params.Frozen = make([]bool, c.Stages)
	}
	for _, stage := range c.Frozen {
		if stage < 0 || stage >= c.Stages {
			return fmt.Errorf("--frozen %d: stages are 0 to %d", stage, c.Stages-1)
		}
		params.Frozen[stage] = true
	}
	plan, err := rules[c.Schedule](params)
	if err != nil {
		return err
	}
	plan, err = schedule.Lifetimes(plan, languageModel(c.Stages, plan.Frozen), 3)
	if err != nil {
		return err
	}
	return plan.WriteText(s.out)
}

// The parts of an entry of a language model, as sets.
const (
	tokens  = 1 << 0
	labels  = 1 << 1
	weights = 1 << 2
)

// languageModel returns the facts of stages of which the first one embeds tokens
// and the last one computes the loss.
func languageModel(stages int, frozen []bool) []schedule.Facts {
	facts := make([]schedule.Facts, stages)
	facts[0].Reads[schedule.F] |= tokens
	for _, kind := range []schedule.Kind{schedule.F, schedule.B, schedule.I} {
		facts[stages-1].Reads[kind] |= labels | weights
	}
	for stage, f := range slices.All(frozen) {
		facts[stage].Frozen = f
	}
	return facts
}
