package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/check"
	"github.com/weir-ml/weir/schedule/format"
	"github.com/weir-ml/weir/schedule/lower"
)

// source is where a command gets its plan from: the name of a schedule, or a file.
type source struct {
	Plan     string `arg:"" name:"schedule|file" help:"A schedule (see docs/cli.md), a plan file, or - for standard input." predictor:"plan"`
	making   `group:"Plan:"`
	Capacity *int   `help:"Messages that a link between ranks holds: 0 is rendezvous, -1 no limit. A schedule given by name gets transfers for it; without it, only its computations are checked." group:"Plan:" placeholder:"N"`
	From     string `help:"Form of a plan file: auto, text, compute, comms, order or json." group:"Plan:" aliases:"format" enum:"auto,text,compute,comms,order,json" default:"auto"`
	Letters  string `help:"PyTorch's letters: today's (I and W, B for both), or the old ones of 2024 (B and W, BW for both); auto takes the old ones where there is BW, or W without I." group:"Plan:" enum:"auto,today,old" default:"auto"`
}

// read returns the plan, and the file that it is from, nil where it was made: then it has
// what the flags say of copies and of transfers.
func (c *source) read(s *streams) (*schedule.Plan, *format.File, error) {
	plan, file, err := c.load(s)
	if err == nil && file == nil && c.quantizes() {
		plan, err = lower.Quantize(plan, slices.Repeat([]schedule.Facts{{Quantizes: true}}, plan.Placement.Stages()), c.quantizing())
	}
	if err == nil && file == nil && c.Capacity != nil && plan.Placement.Ranks > 1 {
		plan, err = lower.Transfers(plan, *c.Capacity)
	}
	return plan, file, err
}

// load returns the plan as it is in the file, or as the schedule's rule makes it.
func (c *source) load(s *streams) (*schedule.Plan, *format.File, error) {
	if c.capacity() < schedule.Unlimited {
		return nil, nil, usage("--capacity %d: give 0 or more, or -1 for no limit", c.capacity())
	}
	_, unknown := schedule.Find(c.Plan)
	if unknown == nil {
		for flag, given := range map[string]string{"--from": c.From, "--letters": c.Letters} {
			if given != "auto" {
				return nil, nil, usage("%s is for a plan file; %s is a schedule, which is made anew", flag, c.Plan)
			}
		}
		plan, err := c.make(c.Plan)
		return plan, nil, err
	}
	if c.Plan != "-" && !strings.ContainsAny(c.Plan, "./\\") {
		if _, missing := os.Stat(c.Plan); missing != nil {
			return nil, nil, fmt.Errorf("%w; nor is there a file of that name", unknown)
		}
	}
	if err := c.unusedWith(c.Plan); err != nil {
		return nil, nil, err
	}
	file, err := readFile(s, c.Plan, c.From, c.Letters, c.making)
	if err != nil {
		return nil, nil, err
	}
	return file.Plan, file, nil
}

// capacity returns the capacity of the links, no limit where none was given.
func (c *source) capacity() int { return or(c.Capacity, schedule.Unlimited) }

// readFile reads a plan file, or standard input where its name is -.
func readFile(s *streams, name, form, letters string, m making) (*format.File, error) {
	for flag, given := range map[string]*int{"--ranks": m.Ranks, "--stages": m.Stages, "--microbatches": m.Microbatches} {
		if given != nil && *given < 1 {
			return nil, usage("%s %d: give 1 or more", flag, *given)
		}
	}
	options := format.Options{Name: name, Ranks: or(m.Ranks, 0), Stages: or(m.Stages, 0), Microbatches: or(m.Microbatches, 0)}
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
		return nil, faults{{options.Name, place.Line, place.Column, "", nil, place.Text}}
	}
	return file, err
}

// proven returns an error that lists every fault of the plan, each with its place in
// the file where the plan is from one.
func proven(plan *schedule.Plan, file *format.File, capacity int) (check.Proof, error) {
	proof, err := check.Prove(plan, capacity)
	invalid, ok := errors.AsType[*check.Error](err)
	if !ok {
		return proof, err
	}
	var found faults
	for _, f := range invalid.Faults {
		one := fault{File: plan.Name, Code: f.Code.String(), Text: f.Text}
		if f.Rank >= 0 {
			one.Rank = &f.Rank
		}
		if file != nil {
			one.File = file.Name
			one.Line, one.Column = file.Place(f.Rank, f.Position)
		}
		found = append(found, one)
	}
	if file != nil {
		found = append(found, hints(file)...)
	}
	if invalid.More > 0 {
		found = append(found, fault{File: found[0].File, Text: fmt.Sprintf("and %d more faults", invalid.More)})
	}
	return proof, found
}

// hints are what may be behind the faults of a file.
func hints(file *format.File) (found faults) {
	if file.OldLetters {
		found = append(found, fault{file.Name, 1, 1, "note", nil, oldLetters + "; --letters today reads today's."})
	}
	if a, line, column, ok := file.Outlier(); ok {
		found = append(found, fault{file.Name, line, column, "note", nil,
			fmt.Sprintf("%v makes it a plan of %d microbatches, and there is none before it; give --microbatches if it is a slip.", a, a.Microbatch()+1)})
	}
	return found
}

// oldLetters says how a file was read.
const oldLetters = "The letters are read as those of 2024, B the input gradient and BW the full backward"
