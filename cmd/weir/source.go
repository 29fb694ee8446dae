package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/format"
)

// source is where a command gets its plan from: the name of a schedule, or a file.
type source struct {
	Plan string `arg:"" name:"schedule|file" help:"A schedule (see docs/cli.md), a plan file, or - for standard input."`
	making
	Format string `help:"Form of a plan file: auto, text, compute, comms, order or json." enum:"auto,text,compute,comms,order,json" default:"auto"`
}

// read returns the plan, and the file that it is from, nil where it was made.
func (c *source) read(s *streams) (*schedule.Plan, *format.File, error) {
	_, err := schedule.Find(c.Plan)
	if err == nil {
		plan, err := c.make(c.Plan)
		return plan, nil, err
	}
	if c.Plan != "-" && !strings.ContainsAny(c.Plan, "./\\") {
		if _, missing := os.Stat(c.Plan); missing != nil {
			return nil, nil, err // it was meant to be a name
		}
	}
	file, err := readFile(s, c.Plan, c.Format, c.Stages, c.Microbatches)
	if err != nil {
		return nil, nil, err
	}
	return file.Plan, file, nil
}

// readFile reads a plan file, or standard input where its name is -.
func readFile(s *streams, name, form string, stages, microbatches int) (*format.File, error) {
	options := format.Options{Name: name, Stages: stages, Microbatches: microbatches}
	options.Format, _ = format.Parse(form)
	in := s.in
	if name == "-" {
		options.Name = "<stdin>"
	} else {
		file, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer file.Close() // It was only read.
		in = file
	}
	file, err := format.Read(in, options)
	if place, ok := errors.AsType[*format.Error](err); ok {
		return nil, faults{fmt.Sprintf("%s:%d:%d: %s", options.Name, place.Line, place.Column, place.Text)}
	}
	return file, err
}

// proven returns an error that lists every fault of the plan, each with its place in
// the file where the plan is from one.
func proven(plan *schedule.Plan, file *format.File, capacity int) (schedule.Proof, error) {
	proof, err := schedule.Prove(plan, capacity)
	invalid, ok := errors.AsType[*schedule.PlanError](err)
	if !ok {
		return proof, err
	}
	var lines faults
	for _, f := range invalid.Faults {
		place := plan.Name
		if file != nil {
			line, column := file.Place(f.Rank, f.Position)
			place = fmt.Sprintf("%s:%d:%d", file.Name, line, column)
		}
		lines = append(lines, fmt.Sprintf("%s: %v: %s", place, f.Code, f.Text))
	}
	if invalid.More > 0 {
		lines = append(lines, fmt.Sprintf("%s: and %d more faults", plan.Name, invalid.More))
	}
	return proof, lines
}
