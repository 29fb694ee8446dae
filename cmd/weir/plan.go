package main

import (
	"io"
	"os"
	"slices"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/format"
	"github.com/weir-ml/weir/schedule/lower"
)

// planCmd makes a plan.
type planCmd struct {
	Name      string `arg:"" help:"The schedule: ${schedules}." predictor:"schedule"`
	planFlags `group:"Plan:"`
	To        string `help:"compute: PyTorch's CSV of computations; comms: the same with transfers, for PyTorch 2.15 and later; comms-2.6: for PyTorch 2.6 to 2.14; order: signed order list; plan: the form that weir and Python read, with the end of every lifetime; text: the same for people. By default plan for FILE.json, compute for FILE.csv, and text for FILE.txt and standard output." enum:"auto,text,compute,comms,comms-2.6,order,plan,json" default:"auto"`
	Capacity  int    `help:"Messages that a link between ranks holds: 0 places transfers so that each send can meet its receive, which works with any capacity; 1 or more receives as late as possible; -1 is no limit." default:"0" placeholder:"N"`
	Runtime   string `help:"The runtime of the plan: weir, or pytorch, whose ranks post a receive and wait in the computation that needs it. comms is always for pytorch." enum:"weir,pytorch" default:"weir"`
	JSON      bool   `help:"The same as --to plan."`
	Output    string `help:"File to write, or - for standard output." short:"o" placeholder:"FILE" default:"-"`
}

// Help returns the text that is printed below the flags.
func (planCmd) Help() string {
	return `In the text form a line is a segment: x, the number of repeats, the number of microbatches by which each repeat advances, and its actions; or, for a nested loop, segments in parentheses. 1B0~gs is the backward of microbatch 0 on stage 1, which drops g and s. Letters of drops: p is parts of the batch entry, i the stage's input, o its output, g the gradient of its output, s the saved tensors, t the buffer of a completed transfer, r the end of the microbatch on the rank; f and b are the copies of the stage's weights for forwards and backwards, a the copy of saved tensors that are away, in far memory.

In the text form and the plan form the stages read the batch as in a language model: the first stage reads part 0, the tokens, in its forward, and the last stage reads parts 1 and 2, labels and weights, in forward and backward.`
}

// Run prints the plan.
func (c *planCmd) Run(s *streams) error {
	plan, err := c.make(c.Name)
	if _, unknown := schedule.Find(c.Name); unknown != nil {
		if _, missing := os.Stat(c.Name); missing == nil || c.Name == "-" {
			return usage("plan takes the name of a schedule; use weir check, sim, draw or convert for %s", c.Name)
		}
	}
	if err != nil {
		return err
	}
	if err := jsonEnds(c.JSON, c.Output); err != nil {
		return err
	}
	form, _ := format.Parse(c.To)
	if c.To == "auto" {
		if c.Output != "-" {
			if err := endsIn(c.Output, ".json", ".csv", ".txt", ""); err != nil {
				return usage("%q does not end in .json, .csv or .txt: give --to", c.Output)
			}
		}
		form = planForm(c.Output, format.Text)
	}
	if c.JSON {
		form = format.JSON
	}
	if err := checkForm(form, c.Output); err != nil {
		return err
	}
	inPyTorch := form == format.Comms || form == format.Comms26
	if inPyTorch || c.Runtime == schedule.PyTorch.String() {
		plan.Runtime = schedule.PyTorch
	}
	if c.Offload != "" && form != format.Text && form != format.JSON {
		return usage("--offload: %v has no actions that copy to far memory: write text or plan, or leave out the flag", form)
	}
	if onlyComputes := form == format.Compute || form == format.Order; onlyComputes && (c.Capacity != 0 || c.quantizes() || c.Replicas > 1) {
		return usage("--capacity, --quantize and --replicas add actions, and %v has computations alone: leave them out", form)
	}
	away, err := c.away(plan)
	if err != nil {
		return err
	}
	if err := c.validate(); err != nil {
		return err
	}
	if form != format.Compute && form != format.Order {
		if c.Capacity < schedule.Unlimited {
			return usage("--capacity %d: give 0 or more, or -1 for no limit", c.Capacity)
		}
		passes := lower.Passes{
			StageInfo: languageModel(plan, c.quantizes()), Parts: 3, Quantizing: c.quantizing(),
			OffloadSlots: away, Overlap: c.Overlap, Capacity: c.Capacity, NoLifetimes: inPyTorch,
		}
		if err := c.passes(&passes); err != nil {
			return err
		}
		if plan, err = lower.Prepare(plan, passes); err != nil {
			return usage("%s: %s", c.Name, plain(err))
		}
	}
	return s.write(c.Output, func(w io.Writer) error { return format.Write(w, plan, form) })
}

// The parts of a language model's entry, as sets.
const (
	tokens  = 1 << 0
	labels  = 1 << 1
	weights = 1 << 2
)

// languageModel returns the facts of stages: the first one embeds tokens, and the last one
// computes the loss.
func languageModel(plan *schedule.Plan, quantizes bool) []schedule.StageInfo {
	facts := make([]schedule.StageInfo, plan.Placement.Stages())
	for stage := range facts {
		facts[stage].Split = hasAction(plan, schedule.W, stage)
		facts[stage].Quantizes = quantizes || hasAction(plan, schedule.Quantize, stage)
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

// hasAction reports whether the plan has an action of this kind for the stage.
func hasAction(plan *schedule.Plan, kind schedule.Kind, stage int) bool {
	for a := range schedule.StaticActions(plan.Programs[plan.Placement.Rank[stage]]) {
		if a.Kind() == kind && a.Stage() == stage {
			return true
		}
	}
	return false
}

// withLifetimes returns a valid plan with the lifetimes of a language model's stages, unless the plan has
// lifetimes already. It adds transfers, for links of the given capacity, to a plan that lacks them or does
// not wait for its sends. It folds the repeating actions of plain lists into segments.
func withLifetimes(plan *schedule.Plan, capacity int) (*schedule.Plan, error) {
	if plan.StageWindows != nil {
		return plan, nil
	}
	if has := plan.Kinds(); !has[schedule.WaitF] && !has[schedule.WaitB] && plan.HasTransfers() {
		plan = lower.Computations(plan)
	}
	plan = folded(plan)
	if plan.Placement.Ranks > 1 && !plan.HasTransfers() {
		lowered, err := lower.Transfers(plan, capacity)
		if err != nil {
			return nil, err
		}
		plan = lowered
	}
	return lower.Lifetimes(plan, languageModel(plan, false), 3)
}

// folded returns the plan with the repeating actions of programs that are plain lists folded into segments.
func folded(plan *schedule.Plan) *schedule.Plan {
	short := *plan
	short.Programs = slices.Clone(plan.Programs)
	for rank, program := range plan.Programs {
		if len(program) == 1 && program[0].Repeat == 1 && program[0].Inner == nil {
			var b schedule.Builder
			for _, a := range program[0].Body {
				b.Append(a)
			}
			short.Programs[rank] = b.Program()
		}
	}
	return &short
}
