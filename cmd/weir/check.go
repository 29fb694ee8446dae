package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/weir-ml/weir/cmd/weir/internal/trainers"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/check"
	"github.com/weir-ml/weir/schedule/format"
	"github.com/weir-ml/weir/schedule/units"
	"github.com/weir-ml/weir/schedule/waitgraph"
)

// checkCmd checks a plan.
type checkCmd struct {
	source
	Runtime  string    `help:"What is to run the plan. weir waits at a receive; pytorch posts it and waits in the computation that needs it; pytorch-2.9 to pytorch-2.15-edge are versions over NCCL, in which a transfer can hold up others (docs/pytorch.md); torchtitan and automodel run PyTorch's runtime with a compute-only file. A file for one of the last two, or for pytorch, is also checked for what it refuses or runs wrongly. auto is pytorch for PyTorch's CSV, the file's runtime for the text and plan forms, and weir for all others." group:"Plan:" enum:"auto,weir,pytorch,pytorch-2.9,pytorch-2.14,pytorch-2.14-direction,pytorch-2.15,pytorch-2.15-lazy,pytorch-2.15-edge,torchtitan,automodel" default:"auto"`
	Schedule string    `help:"With --runtime torchtitan or automodel: the name of the schedule that it is given, such as ZBVZeroBubble, which decides what stages a rank has." group:"Plan:" placeholder:"NAME"`
	Links    linkFlags `embed:"" group:"Links:"`
	JSON     bool      `help:"Print the outcome as JSON."`
}

// Help returns the text that is printed below the flags.
func (checkCmd) Help() string {
	return `The exit status is 0 for a valid plan, 1 for a plan with faults, and 2 for a file that is no plan or a wrong command line. Each fault is one line on standard error, FILE:line:column: message, which names the fault and a possible fix.

With --link-bytes a send waits while its message does not fit into what the link has free, and a message that is larger than the link waits for its receive. A valid plan is reported with the least capacity with which it is safe, and with --json also each link with what it needs.`
}

// outcome is the output of --json.
type outcome struct {
	Valid         bool   `json:"valid"`
	Name          string `json:"name"`
	Ranks         int    `json:"ranks"`
	Stages        int    `json:"stages"`
	Microbatches  int    `json:"microbatches"`
	Actions       int64  `json:"actions"`
	Visited       int64  `json:"visited"`
	OldLetters    bool   `json:"old_letters,omitempty"`
	Released      bool   `json:"added_reshards,omitempty"` // whether reshards that the file lacks were added
	LeastCapacity *int64 `json:"least_capacity,omitempty"` // of a valid plan with transfers, in messages
	LinkBytes     int64  `json:"link_bytes,omitempty"`
	// LeastBytes is the smallest link capacity with which the plan runs, in bytes. Links lists the
	// capacity that each link needs, in bytes, or in messages without --link-bytes. Both are also set
	// for a plan that deadlocks, if larger links would be enough.
	LeastBytes *int64               `json:"least_bytes,omitempty"`
	Links      []check.LinkCapacity `json:"links,omitempty"`
	Against    *against             `json:"against,omitempty"`
	// HangsWith lists the versions of PyTorch over NCCL with which a valid plan hangs if NCCL buffers
	// none of its messages.
	HangsWith []string `json:"hangs_with,omitempty"`
	// Uneven reports whether some replicas may have one microbatch more than others.
	Uneven *bool `json:"uneven_replicas,omitempty"`
	// Schedules lists the names of the schedules under which the trainer of --runtime runs the plan.
	Schedules []string `json:"schedules,omitempty"`
	Faults    faults   `json:"faults,omitempty"`
}

// Run prints a line about a valid plan, or the outcome as JSON, and returns the faults of an invalid plan.
func (c *checkCmd) Run(s *streams) error {
	if err := c.place(); err != nil {
		return err
	}
	plan, file, err := c.read(s, runtimeFlag{c.Runtime})
	if unread, ok := errors.AsType[unreadable](err); ok && c.JSON {
		err = errors.Join(printJSON(s.out, &outcome{Name: c.Plan, Faults: faults(unread)}), err)
	}
	if err != nil {
		return err
	}
	refused, schedules, err := c.loaded(file)
	if err != nil {
		return err
	}
	sizes, err := c.Links.sizes(s, plan, file)
	if err != nil {
		return err
	}
	capacity, inBytes := int64(plan.Capacity), sizes.Of != nil
	if inBytes {
		capacity = int64(c.Links.LinkBytes)
	}
	proof, err := check.ProveBytes(plan, capacity, sizes)
	err = located(plan, file, err)
	found, invalid := errors.AsType[faults](err)
	if err != nil && !invalid {
		return err
	}
	if len(refused) > 0 {
		found, invalid = append(refused, found...), true
		err = found
	}
	o := outcome{
		Valid: !invalid, Name: plan.Name, Faults: found, Actions: proof.Actions, Visited: proof.Visited,
		Ranks: plan.Placement.Ranks, Stages: plan.Placement.Stages(), Microbatches: plan.Microbatches, Schedules: schedules,
	}
	if file != nil {
		o.OldLetters, o.Released = file.OldLetters, file.Released
	}
	if inBytes || c.Links.Against != "" {
		n, undecided := needs(plan, sizes)
		if undecided != nil && o.Valid {
			return undecided
		}
		if undecided == nil {
			o.Links = n.links
		}
		if inBytes && undecided == nil && n.least != schedule.Unlimited {
			o.LinkBytes, o.LeastBytes = capacity, &n.least
			if invalid && n.least > capacity {
				found = append(found, fault{File: found[0].File, Code: "note", Text: "Links that hold " + units.Exactly(n.least) + " are enough."})
				err, o.Faults = found, found
			}
		}
		if c.Links.Against != "" && undecided == nil {
			var refused error
			if o.Against, refused = c.compare(s, plan, n); refused != nil {
				return refused
			}
		}
	}
	if o.Valid && plan.HasTransfers() && !inBytes {
		least, err := proof.LeastCapacity()
		if err != nil {
			return err
		}
		if least != schedule.Unlimited {
			o.LeastCapacity = &least
		}
		o.HangsWith = hangsWith(plan, &proof)
	}
	if o.Valid && file == nil && c.Replicas > 1 && plan.Microbatches > 1 {
		o.Uneven = c.shareUnevenly(c.Plan, plan)
	}
	if err == nil && o.Against != nil && len(o.Against.Worse) > 0 {
		err = errShown
	}
	if c.JSON {
		return errors.Join(printJSON(s.out, &o), err)
	}
	if o.Valid {
		fmt.Fprintln(s.text, o.text(plan))
	}
	if o.Against != nil {
		o.Against.text(s.text, inBytes)
	}
	return err
}

func printJSON(w io.Writer, v any) error {
	out := json.NewEncoder(w)
	out.SetIndent("", "  ")
	return out.Encode(v)
}

// hangsWith returns the versions of PyTorch over NCCL with which a valid plan hangs if NCCL buffers none of its
// messages. It returns nil for a plan whose runtime does not post its receives.
func hangsWith(plan *schedule.Plan, proof *check.Proof) (names []string) {
	if !plan.Runtime.Posts() || proof.RunsUnderRendezvous() {
		return nil
	}
	for _, runtime := range schedule.Runtimes() {
		own := *plan
		own.Runtime = runtime
		if err := check.Plan(&own); runtime.Queue() != schedule.NoQueue && errors.Is(err, waitgraph.ErrDeadlock) {
			names = append(names, runtime.String())
		}
	}
	return names
}

// text describes a valid plan in one line.
func (o *outcome) text(p *schedule.Plan) string {
	segments := 0
	for _, program := range p.Programs {
		for i := range program {
			segments += max(len(program[i].Inner), 1)
		}
	}
	text := fmt.Sprintf("ok: %q, %v: %s, %s, %s, %s in %s", p.Name, p.Mode,
		units.Number(o.Ranks, "rank"), units.Number(o.Stages, "stage"), units.Number(o.Microbatches, "microbatch"),
		units.Number(o.Actions, "action"), units.Number(segments, "segment"))
	if o.Visited < o.Actions {
		text += fmt.Sprintf(", all repeats proven from %d", o.Visited)
	}
	switch {
	case o.LeastBytes != nil && *o.LeastBytes > 0:
		text += "; links must hold " + units.Exactly(*o.LeastBytes)
	case o.LeastBytes != nil:
		text += "; safe under rendezvous"
	case o.LeastCapacity == nil:
	case *o.LeastCapacity == 0:
		text += "; safe under rendezvous"
	default:
		text += fmt.Sprintf("; links must hold %s", units.Number(*o.LeastCapacity, "message"))
	}
	if o.HangsWith != nil {
		text += "; over NCCL, unless it buffers the messages, hangs with " + strings.Join(o.HangsWith, ", ")
	}
	if o.Uneven != nil && *o.Uneven {
		text += "; replicas may share microbatches unevenly"
	} else if o.Uneven != nil {
		text += fmt.Sprintf("; with %s ranks reduce in another order: give replicas equal numbers", units.Number(o.Microbatches-1, "microbatch"))
	}
	if o.OldLetters {
		text += ". " + oldLetters + "; --letters today reads today's"
	}
	if o.Released {
		text += "; " + releasedWeights
	}
	if o.Schedules != nil {
		text += "; with the schedule " + strings.Join(o.Schedules, " or ")
	}
	if p.StageWindows != nil {
		text += "; in flight per stage " + numberList(p.StageWindows)
	}
	if p.EntryWindows != nil {
		text += "; entries per rank " + numberList(p.EntryWindows)
	}
	if p.StageWindows == nil && p.EntryWindows == nil {
		text += "; no lifetimes"
	}
	return text
}

// numberList lists the numbers, or their range if there are many.
func numberList(numbers []int) string {
	if len(numbers) > 16 {
		return fmt.Sprintf("%d to %d", slices.Min(numbers), slices.Max(numbers))
	}
	return strings.Trim(fmt.Sprint(numbers), "[]")
}

// loaded checks a file against the runtime that the flags name. It returns the faults for which the
// runtime refuses the file or runs it incorrectly, and the schedule names under which it runs.
func (c *checkCmd) loaded(file *format.File) (found faults, names []string, err error) {
	trains, name := trainers.Known(c.Runtime), c.Schedule
	given := slices.IndexFunc(trainers.Schedules, func(name string) bool { return strings.EqualFold(name, c.Schedule) })
	switch {
	case c.Schedule != "" && !trains:
		return nil, nil, usage("--schedule %s is the name that torchtitan or automodel is given: give --runtime as well", c.Schedule)
	case c.Schedule != "" && given < 0:
		return nil, nil, usage("--schedule %s: %s knows %s", c.Schedule, c.Runtime, strings.Join(trainers.Schedules, ", "))
	case trains && file == nil:
		return nil, nil, usage("--runtime %s checks a file: weir plan %s --to compute -o FILE writes one", c.Runtime, c.Plan)
	case file == nil || !trains && !strings.HasPrefix(c.Runtime, schedule.PyTorch.String()):
		return nil, nil, nil
	case c.Schedule != "":
		name = trainers.Schedules[given]
	}
	refused, names := trainers.Check(file, c.Runtime, name)
	for _, f := range refused {
		found = append(found, fault{File: f.Name, Line: f.Line, Column: f.Column, Text: f.Text})
	}
	return found, names, nil
}
