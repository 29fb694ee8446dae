package main

import (
	"io"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/format"
	"github.com/weir-ml/weir/schedule/lower"
)

// convertCmd rewrites a plan file.
type convertCmd struct {
	File         string `arg:"" help:"The plan file, or - for standard input." predictor:"file"`
	From         string `help:"Form of the file: auto, text, compute, comms, comms-2.6, order or plan." enum:"auto,text,compute,comms,comms-2.6,order,plan,json" default:"auto"`
	To           string `help:"Form to write: text, compute, comms, comms-2.6, order or plan, with today's letters; plan adds the transfers and lifetimes that the file lacks; by default plan for FILE.json, compute for FILE.csv if the input is no CSV, and otherwise the file itself, byte for byte." enum:"same,text,compute,comms,comms-2.6,order,plan,json" default:"same"`
	Letters      string `help:"PyTorch's letters in the file: auto, today or old." enum:"auto,today,old" default:"auto"`
	Ranks        *int   `help:"Number of ranks, if the file does not show it." placeholder:"P"`
	Stages       *int   `help:"Number of stages, if the file does not show it." placeholder:"S"`
	Microbatches *int   `help:"Number of microbatches, if the file does not show it." placeholder:"M"`
	Capacity     int    `help:"Messages that a link holds, for a plan that gets its transfers here (--to comms, --to plan, --runtime); 0 works with any capacity, -1 is no limit." default:"0" placeholder:"N"`
	Runtime      string `help:"The runtime that the plan is moved to: weir or pytorch. A plan with transfers for the other one gets new ones." enum:"auto,weir,pytorch" default:"auto"`
	Near         bool   `help:"Leave out the copies to far memory, which only text and plan can express."`
	JSON         bool   `help:"The same as --to plan."`
	Output       string `help:"File to write, or - for standard output." short:"o" placeholder:"FILE" default:"-"`
}

// Run writes the plan.
func (c *convertCmd) Run(s *streams) error {
	if err := jsonEnds(c.JSON, c.Output); err != nil {
		return err
	}
	file, err := readFile(s, c.File, c.From, c.Letters, planFlags{Ranks: c.Ranks, Stages: c.Stages, Microbatches: c.Microbatches}, true)
	if err != nil {
		return err
	}
	if c.Near {
		file.Plan = lower.WithoutOffload(file.Plan)
	}
	plan := file.Plan
	to, ok := format.Parse(c.To)
	if c.JSON {
		to, ok = format.JSON, true
	}
	if !ok {
		to = planForm(c.Output, file.Format)
		if to == format.Compute && (file.Format == format.Comms || file.Format == format.Comms26) {
			to = file.Format
		}
	}
	if err := checkForm(to, c.Output); err != nil {
		return err
	}
	runtime, moves := schedule.ParseRuntime(c.Runtime)
	if to == file.Format && !c.Near && !moves && (c.To == "same" && !c.JSON || to != format.JSON && len(file.Refused()) == 0) {
		return s.write(c.Output, func(w io.Writer) error {
			_, err := file.WriteTo(w)
			return err
		})
	}
	comms := (to == format.Comms || to == format.Comms26) && plan.Placement.Ranks > 1
	if comms {
		runtime, moves = schedule.PyTorch, true
	}
	if moves || to == format.JSON {
		if _, err := prove(plan, file, schedule.Unlimited); err != nil {
			return err
		}
	}
	if moves {
		plan, err = lower.ForRuntime(runtime, plan, c.Capacity)
	}
	if err == nil && comms && !plan.HasTransfers() {
		plan, err = lower.Transfers(plan, c.Capacity)
	}
	if err == nil && to == format.JSON {
		plan, err = withLifetimes(plan, c.Capacity)
	}
	if err != nil {
		return err
	}
	return s.write(c.Output, func(w io.Writer) error {
		if to == format.JSON {
			return format.WriteJSON(w, plan, file.Costs)
		}
		return format.Write(w, plan, to)
	})
}
