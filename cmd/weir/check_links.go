package main

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/weir-ml/weir/internal/formats/diagnostic"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/check"
	"github.com/weir-ml/weir/schedule/format"
	"github.com/weir-ml/weir/schedule/lengths"
	"github.com/weir-ml/weir/schedule/simulate"
	"github.com/weir-ml/weir/schedule/units"
)

// linkFlags holds the flags of weir check for links whose capacity is in bytes.
type linkFlags struct {
	LinkBytes    size   `help:"Bytes that a link between ranks holds, such as 64MiB, in place of messages: for NCCL, NCCL_BUFFSIZE times the channels of a send; for MPI, the eager limit. A larger message waits for its receive. A schedule given by name has its receives as late as possible, unless --capacity says otherwise." placeholder:"BYTES"`
	MessageBytes size   `help:"Bytes of every message." placeholder:"BYTES"`
	Costs        string `help:"In place of --message-bytes: a file of costs with the output and gradient bytes of each stage, or a model's profile by weir.profile; by default the costs in the plan's file." placeholder:"FILE" predictor:"file"`
	Config       string `help:"In place of --costs: the config.json of a Hugging Face model, or a file with Megatron-LM's flags, as weir fit reads them." placeholder:"FILE" predictor:"file"`
	Seq          int    `help:"With --costs or --config, if bytes depend on it: tokens of a sequence." placeholder:"N" unless:"message-bytes lengths"`
	Sequences    int    `help:"With --seq: sequences of a microbatch." default:"1" placeholder:"N" needs:"seq"`
	Lengths      string `help:"In place of --seq: a file with the lengths of the sequences of each microbatch in tokens, a microbatch a line." placeholder:"FILE" predictor:"file" unless:"message-bytes"`
	Against      string `help:"Another plan, made or read with the same flags: a link that needs more here than there is reported, with exit status 1. Receives of a schedule given by name are as with --link-bytes." placeholder:"SCHEDULE|FILE" predictor:"plan"`
}

// against is the result of a comparison with another plan.
type against struct {
	Name  string      `json:"name"`
	Worse []worseLink `json:"worse"`
}

// worseLink is a link that needs more capacity than in the plan that --against names.
type worseLink struct {
	check.LinkCapacity
	Before int64 `json:"before"`
}

// linkNeeds holds the capacities that the links of a plan need: in bytes if message sizes are known,
// otherwise in messages.
type linkNeeds struct {
	least int64
	links []check.LinkCapacity
}

// needs returns the capacities that the links of a plan need. It returns an error if the plan is invalid even
// with links of unlimited capacity.
func needs(plan *schedule.Plan, sizes check.Sizes) (n linkNeeds, err error) {
	proof, err := check.ProveBytes(plan, schedule.Unlimited, sizes)
	if err == nil {
		n.least, err = proof.LeastCapacity()
	}
	if err == nil {
		n.links, err = proof.LinkCapacities()
	}
	return n, err
}

// place sets the flags that --link-bytes, --against and --lengths imply for a schedule given by name.
func (c *checkCmd) place() error {
	if _, err := schedule.Find(c.Plan); err != nil {
		return nil
	}
	if (c.Links.LinkBytes > 0 || c.Links.Against != "") && c.Capacity == nil {
		c.Capacity = new(schedule.Unlimited)
	}
	priced := pricedPlan{source: c.source, costFlags: costFlags{Lengths: c.Links.Lengths}}
	err := priced.countLengths()
	c.Microbatches = priced.Microbatches
	return err
}

// sizes returns the message sizes of a plan, or no sizes without --link-bytes.
func (c *linkFlags) sizes(s *streams, plan *schedule.Plan, file *format.File) (check.Sizes, error) {
	given := c.MessageBytes > 0 || c.Costs != "" || c.Config != ""
	switch {
	case c.LinkBytes == 0 && (given || c.Seq > 0 || c.Lengths != ""):
		return check.Sizes{}, usage("the sizes of messages are for --link-bytes: give it, or leave them out")
	case (c.LinkBytes > 0 || c.Against != "") && plan.Placement.Ranks > 1 && !plan.HasTransfers():
		return check.Sizes{}, usage("%s has computations alone, which need no links: weir convert adds transfers (--to comms, --to plan)", plan.Name)
	case c.LinkBytes == 0:
		return check.Sizes{}, nil
	case plan.Runtime.Queue() != schedule.NoQueue:
		return check.Sizes{}, usage("--link-bytes is for ranks that wait at their receives, and the transfers of %v have queues: give one of --link-bytes and --runtime", plan.Runtime)
	case c.MessageBytes > 0 && (c.Costs != "" || c.Config != "") || c.Costs != "" && c.Config != "":
		return check.Sizes{}, usage("give one of --message-bytes, --costs and --config")
	case c.MessageBytes > 0:
		return check.Sizes{Of: func(schedule.Action) int64 { return int64(c.MessageBytes) }}, nil
	case !given && (file == nil || file.Costs == nil):
		return check.Sizes{}, usage("--link-bytes: give the sizes of messages with --message-bytes, --costs or --config")
	}
	costs, err := c.read(s, plan.Placement.Depth(), file)
	if err != nil {
		return check.Sizes{}, err
	}
	if c.Seq > 0 && c.Lengths == "" {
		costs = costs.AtSize(lengths.Of(slices.Repeat([]int{c.Seq}, c.Sequences)...))
	}
	p := plan.Placement
	if err := errors.Join(costs.ValidateFor(p.Ranks, p.Depth(), p.Stages()), costs.ValidateLengths(plan.Microbatches)); err != nil {
		return check.Sizes{}, usage("the sizes of messages: %s", diagnostic.Text(err, nil))
	}
	costs = costs.Uniform()
	sizes := check.Sizes{Vary: costs.Lengths != nil, Of: func(send schedule.Action) int64 {
		stage := *costs.Of(send.Stage())
		if costs.Lengths != nil {
			stage = stage.At(costs.Lengths[plan.BatchIndex(send.Microbatch())])
		}
		if send.Kind() == schedule.SendF {
			return stage.Output
		}
		return stage.Gradient
	}}
	for _, program := range plan.Programs {
		for a := range schedule.StaticActions(program) {
			if kind := a.Kind(); (kind == schedule.SendF || kind == schedule.SendB) && a.Stage() < p.Stages() && a.Microbatch() < plan.Microbatches && sizes.Of(a) < 1 {
				return sizes, usage("--link-bytes: the costs have no bytes for %v: give output and gradient of each stage, or --message-bytes", a)
			}
		}
	}
	return sizes, nil
}

// read returns the costs that contain the message sizes.
func (c *linkFlags) read(s *streams, stages int, file *format.File) (*simulate.Costs, error) {
	from := &costFlags{Costs: c.Costs, Lengths: c.Lengths, Seq: c.Seq, Sequences: c.Sequences, Teraflops: 1, LinkRate: 1}
	switch {
	case c.Config != "":
		described := &packCmd{Config: c.Config, Precision: "auto", Teraflops: 1, LinkRate: 1e9}
		costs, err := described.fromConfig(s, stages)
		if err != nil {
			return nil, err
		}
		return from.withLengths(costs)
	case c.Costs != "":
		return from.fromFile(stages)
	}
	return from.withLengths(file.Costs)
}

// compare returns the links that need more capacity than in the plan given by --against.
func (c *checkCmd) compare(s *streams, plan *schedule.Plan, n linkNeeds) (*against, error) {
	name := c.Links.Against
	old := *c
	old.Plan = name
	if err := old.place(); err != nil {
		return nil, err
	}
	other, file, err := old.read(s, runtimeFlag{c.Runtime})
	if err != nil {
		return nil, usage("--against %s: %s", name, plain(err))
	}
	if other.Placement.Ranks != plan.Placement.Ranks {
		return nil, usage("--against %s: it has %s, and %s %d: compare plans for equal ranks", name, units.Number(other.Placement.Ranks, "rank"), plan.Name, plan.Placement.Ranks)
	}
	sizes, err := c.Links.sizes(s, other, file)
	if err != nil {
		return nil, err
	}
	before, err := needs(other, sizes)
	if err != nil {
		return nil, usage("--against %s: %s", name, plain(err))
	}
	found := &against{Name: name, Worse: []worseLink{}}
	for _, link := range n.links {
		worse := worseLink{LinkCapacity: link}
		for _, of := range before.links {
			if capacity := of.Capacity; of.From == link.From && of.To == link.To && of.Outputs == link.Outputs && of.Gradients == link.Gradients {
				worse.Before = capacity
			}
		}
		if worse.Before < link.Capacity {
			found.Worse = append(found.Worse, worse)
		}
	}
	return found, nil
}

// text prints the comparison. Capacities are in bytes if inBytes is true, and otherwise in messages.
func (a *against) text(w io.Writer, inBytes bool) {
	amount := func(n int64) string {
		if inBytes {
			return units.Exactly(n)
		}
		return units.Number(n, "message")
	}
	for _, link := range a.Worse {
		carries := "outputs"
		switch {
		case link.Outputs && link.Gradients:
			carries = "outputs and gradients"
		case link.Gradients:
			carries = "gradients"
		}
		fmt.Fprintf(w, "worse: link from rank %d to rank %d, %s: %s -> %s\n", link.From, link.To, carries, amount(link.Before), amount(link.Capacity))
	}
	if len(a.Worse) == 0 {
		fmt.Fprintf(w, "no worse than %s\n", a.Name)
	}
}
