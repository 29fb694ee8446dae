package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/weir-ml/weir/schedule"
)

// checkCmd checks a plan file.
type checkCmd struct {
	File string `arg:"" help:"The plan file, as weir plan prints it, or - for standard input."`
}

// Run prints a line about a valid plan.
func (c *checkCmd) Run(s *streams) error {
	in := s.in
	if c.File != "-" {
		file, err := os.Open(c.File)
		if err != nil {
			return err
		}
		defer file.Close()
		in = file
	}
	plan, err := schedule.ParseText(in)
	if err != nil {
		return err
	}
	if err := schedule.Check(plan); err != nil {
		if invalid, ok := errors.AsType[*schedule.PlanError](err); ok {
			return errors.New(faults(invalid))
		}
		return err
	}
	_, err = fmt.Fprintln(s.out, summary(plan))
	return err
}

// faults returns a line for each fault.
func faults(e *schedule.PlanError) string {
	var lines []string
	for _, f := range e.Faults {
		lines = append(lines, fmt.Sprintf("%v: %s", f.Code, f.Text))
	}
	if e.More > 0 {
		lines = append(lines, fmt.Sprintf("and %d more faults", e.More))
	}
	return strings.Join(lines, "\n")
}

// summary says what a valid plan amounts to.
func summary(p *schedule.Plan) string {
	actions, segments := int64(0), 0
	for rank, program := range p.Programs {
		actions += p.Actions(rank)
		segments += len(program)
	}
	text := fmt.Sprintf("ok: %q, %v: %s, %s, %s, %s in %s", p.Name, p.Mode,
		count(p.Placement.Ranks, "rank"), count(p.Placement.Stages(), "stage"), count(p.Microbatches, "microbatch"),
		count(actions, "action"), count(segments, "segment"))
	if p.Windows != nil {
		text += "; in flight per stage " + each(p.Windows)
	}
	if p.Entries != nil {
		text += "; entries per rank " + each(p.Entries)
	}
	if p.Windows == nil && p.Entries == nil {
		text += "; no lifetimes"
	}
	return text
}

// each lists the numbers, or says how large they are where there are many.
func each(numbers []int) string {
	if len(numbers) > 16 {
		return fmt.Sprintf("%d to %d", slices.Min(numbers), slices.Max(numbers))
	}
	return strings.Trim(fmt.Sprint(numbers), "[]")
}

func count[N int | int64](n N, what string) string {
	switch {
	case n == 1:
	case strings.HasSuffix(what, "ch"):
		what += "es"
	default:
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}
