package main

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/check"
	"github.com/weir-ml/weir/schedule/format"
	"github.com/weir-ml/weir/schedule/lower"
	"github.com/weir-ml/weir/schedule/simulate"
)

// source is the plan of a command: the name of a schedule, or a file.
type source struct {
	Plan      string `arg:"" name:"schedule|file" help:"A schedule (see docs/cli.md), a plan file, or - for standard input." predictor:"plan"`
	planFlags `group:"Plan:"`
	Capacity  *int   `help:"Messages that a link between ranks holds: 0 is rendezvous, -1 no limit. A plan without transfers gets them for this capacity; without the flag, only its computations are checked. The default is the capacity in the file." group:"Plan:" placeholder:"N"`
	From      string `help:"Form of a plan file: auto, text, compute, comms, comms-2.6, order or plan." group:"Plan:" enum:"auto,text,compute,comms,comms-2.6,order,plan,json" default:"auto"`
	Letters   string `help:"PyTorch's letters: today's (I and W, B for both), or the old ones of 2024 (B and W, BW for both); auto takes the old ones if the file has BW, or W without I." group:"Plan:" enum:"auto,today,old" default:"auto"`
}

// runtimeFlag holds the flag with the runtime of a plan.
type runtimeFlag struct {
	Runtime string `help:"The runtime of the plan: weir, whose ranks wait at a receive, or pytorch, whose ranks post it and wait in the computation that needs it; pytorch-2.9 to pytorch-2.15-edge are versions over NCCL, in which a transfer can hold up others (docs/pytorch.md). auto is pytorch for PyTorch's CSV, the file's runtime for the text and plan forms, and weir for all others." group:"Plan:" enum:"auto,weir,pytorch,pytorch-2.9,pytorch-2.14,pytorch-2.14-direction,pytorch-2.15,pytorch-2.15-lazy,pytorch-2.15-edge" default:"auto"`
}

// read returns the plan for the runtime that the flag selects, and its file. For a plan made by name the
// file is nil, and the flags decide which copies and transfers the plan has.
func (c *source) read(s *streams, m runtimeFlag) (*schedule.Plan, *format.File, error) {
	plan, file, err := c.load(s)
	if err != nil {
		return plan, file, err
	}
	own := *plan
	plan = &own
	if runtime, known := schedule.ParseRuntime(m.Runtime); known {
		plan.Runtime = runtime
	}
	if file != nil {
		if c.Capacity != nil && plan.HasTransfers() {
			plan.Capacity = *c.Capacity
		}
		return plan, file, nil
	}
	plan, err = c.replicate(plan)
	if err == nil && c.quantizes() {
		plan, err = lower.Quantize(plan, slices.Repeat([]schedule.StageInfo{{Quantizes: true}}, plan.Placement.Stages()), c.quantizing())
	}
	if err == nil && c.Capacity != nil && plan.Placement.Ranks > 1 {
		plan, err = lower.Transfers(plan, *c.Capacity)
	}
	if err == nil {
		plan, err = c.offload(plan)
	}
	return plan, nil, err
}

// defaultLinks is the default capacity of links, as in the runner's examples.
const defaultLinks = 1

// timedPlan holds the flags of a plan that is simulated.
type timedPlan struct {
	pricedPlan
	runtimeFlag
}

// provenPlan returns the proven plan for the runtime that the flag selects, and its costs. A plan without
// transfers gets them if --capacity is given, and for the runtimes of PyTorch with queues.
func (c *timedPlan) provenPlan(s *streams) (*schedule.Plan, *simulate.Costs, error) {
	if err := c.countLengths(); err != nil {
		return nil, nil, err
	}
	plan, file, err := c.read(s, c.runtimeFlag)
	if err != nil {
		return nil, nil, err
	}
	capacity := or(c.Capacity, defaultLinks)
	if plan.Runtime.Posts() {
		capacity = 0
	}
	if file != nil && file.Plan.Runtime.Posts() != plan.Runtime.Posts() {
		if _, err := prove(file.Plan, file, schedule.Unlimited); err != nil {
			return nil, nil, err
		}
		if plan, err = lower.ForRuntime(plan.Runtime, file.Plan, capacity); err != nil {
			return nil, nil, err
		}
	} else if _, err := prove(plan, file, plan.Capacity); err != nil {
		return nil, nil, err
	}
	if plan.Placement.Ranks > 1 && !plan.HasTransfers() && (c.Capacity != nil || plan.Runtime.Queue() != schedule.NoQueue) {
		if plan, err = lower.Transfers(plan, capacity); err != nil {
			return nil, nil, err
		}
	}
	costs, err := c.price(plan.Placement, file)
	if err != nil {
		return nil, nil, err
	}
	switch has := plan.Kinds(); {
	case c.Q.Rat != nil && !has[schedule.Quantize]:
		return nil, nil, usage("--q: no stage of the plan quantizes weights: give --quantize, or leave out --q")
	case c.FarTime.Rat != nil && !has[schedule.Offload]:
		return nil, nil, usage("--far-time: the plan copies nothing to far memory: give --offload, or leave out --far-time")
	}
	return plan, c.apply(costs), nil
}

// load returns the plan in the file, or the plan that the rule of the named schedule makes.
func (c *source) load(s *streams) (*schedule.Plan, *format.File, error) {
	if c.Capacity != nil && *c.Capacity < schedule.Unlimited {
		return nil, nil, usage("--capacity %d: give 0 or more, or -1 for no limit", *c.Capacity)
	}
	_, unknown := schedule.Find(c.Plan)
	if unknown == nil {
		for flag, given := range map[string]string{"--from": c.From, "--letters": c.Letters} {
			if given != "auto" {
				return nil, nil, usage("%s is for a plan file; %s is a schedule: leave out the flag", flag, c.Plan)
			}
		}
		plan, err := c.make(c.Plan)
		return plan, nil, err
	}
	if c.Plan != "-" && !strings.ContainsAny(c.Plan, "./\\") {
		if _, missing := os.Stat(c.Plan); errors.Is(missing, fs.ErrNotExist) {
			return nil, nil, fmt.Errorf("%w; there is no file of that name either", unknown)
		}
	}
	if err := c.refuseFor(c.Plan); err != nil {
		return nil, nil, err
	}
	file, err := readFile(s, c.Plan, c.From, c.Letters, c.planFlags, false)
	if err != nil {
		return nil, nil, err
	}
	return file.Plan, file, nil
}

// readFile reads a plan file, or standard input if the name is -. If old is set, it accepts the old schema.
func readFile(s *streams, name, form, letters string, m planFlags, old bool) (*format.File, error) {
	for flag, given := range map[string]*int{"--ranks": m.Ranks, "--stages": m.Stages, "--microbatches": m.Microbatches} {
		if given != nil && *given < 1 {
			return nil, usage("%s %d: give 1 or more", flag, *given)
		}
	}
	options := format.Options{Name: name, Ranks: or(m.Ranks, 0), Stages: or(m.Stages, 0), Microbatches: or(m.Microbatches, 0), OldSchema: old}
	options.Format, _ = format.Parse(form)
	options.Letters, _ = format.ParseLetters(letters)
	in, err := s.open(name)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	options.Name = in.name
	file, err := format.Read(in, options)
	if place, ok := errors.AsType[*format.Error](err); ok {
		return nil, unreadable{{options.Name, place.Line, place.Column, "", nil, place.Text}}
	}
	return file, err
}

// prove returns the proof of the plan, or an error that lists the faults, with their locations
// if the plan is from a file.
func prove(plan *schedule.Plan, file *format.File, capacity int) (check.Proof, error) {
	proof, err := check.Prove(plan, capacity)
	return proof, located(plan, file, err)
}

// located returns the faults of a plan with their locations, and any other error unchanged.
func located(plan *schedule.Plan, file *format.File, err error) error {
	invalid, ok := errors.AsType[*check.Error](err)
	if !ok {
		return err
	}
	var found faults
	for _, f := range invalid.Faults {
		one := fault{File: plan.Name, Code: f.Code.String(), Text: f.Text}
		if f.Rank >= 0 {
			one.Rank = &f.Rank
		}
		if file != nil {
			one.File = file.Name
			position := f.Position
			if before, at, ok := predecessor(plan, &f); ok {
				position, one.Text = at, fmt.Sprintf("%s after %v.", strings.TrimSuffix(f.Text, "."), before)
			}
			one.Line, one.Column = file.LineColumn(f.Rank, position)
			one.Text = file.Spell(one.Text)
		}
		found = append(found, one)
	}
	if file != nil {
		found = append(found, hints(file)...)
	}
	for _, code := range slices.Sorted(maps.Keys(invalid.More)) {
		found = append(found, fault{File: found[0].File, Text: fmt.Sprintf("and %d more: %v", invalid.More[code], code)})
	}
	return found
}

// predecessor finds the action after which a missing action belongs: the one of the same stage and kind for
// the closest earlier microbatch, and its position. ok is false if there is none, and for all other faults. It
// searches only as much of a program as a file could contain.
func predecessor(plan *schedule.Plan, f *check.Fault) (found schedule.Action, at int64, ok bool) {
	if f.Code != check.Missing || f.Rank < 0 {
		return found, 0, false
	}
	position := int64(0)
	for a := range plan.All(f.Rank) {
		if a.Stage() == f.Action.Stage() && a.Kind() == f.Action.Kind() && a.Microbatch() < f.Action.Microbatch() &&
			(!ok || a.Microbatch() > found.Microbatch()) {
			found, at, ok = schedule.NewAction(a.Kind(), a.Stage(), a.Microbatch()), position, true
		}
		if position++; position > format.MaxBytes {
			break
		}
	}
	return found, at, ok
}

// hints returns possible causes of the faults of a file.
func hints(file *format.File) (found faults) {
	if file.OldLetters {
		found = append(found, fault{file.Name, 1, 1, "note", nil, oldLetters + "; --letters today reads today's."})
	}
	if a, line, column, ok := file.Outlier(); ok {
		found = append(found, fault{file.Name, line, column, "note", nil,
			fmt.Sprintf("%v makes this a plan of %d microbatches, but the microbatch before it is missing; give --microbatches if it is a mistake.", a, a.Microbatch()+1)})
	}
	return found
}

// releasedWeights tells the user that the plan has releases of weights that its file lacks.
const releasedWeights = "a stage's last backward releases its weights, as in PyTorch 2.9, whose files lack the last RESHARD"

// oldLetters tells the user that the file was read as one with old letters.
const oldLetters = "The letters are read as those of 2024, B the input gradient and BW the full backward"
