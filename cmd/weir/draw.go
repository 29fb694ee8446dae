package main

import (
	"github.com/weir-ml/weir/schedule/draw"
	"github.com/weir-ml/weir/trainer/outfile"
)

// drawCmd draws a plan.
type drawCmd struct {
	source
	pricing
	Trace  bool   `help:"Write a trace for Perfetto or chrome://tracing in place of the picture."`
	Output string `help:"File to write; by default standard output." short:"o" placeholder:"FILE"`
	JSON   bool   `help:"The same as --trace, which is JSON."`
}

// Run writes the picture, or the trace.
func (c *drawCmd) Run(s *streams) error {
	plan, file, err := c.read(s)
	if err != nil {
		return err
	}
	if _, err := proven(plan, file, c.capacity()); err != nil {
		return err
	}
	costs, err := c.price(plan.Placement, file)
	if err != nil {
		return err
	}
	if costs.microbatch > 0 { // what is drawn then are microbatches in flight
		costs.Costs = costs.without()
	}
	step, err := draw.Simulate(plan, costs.Costs, c.capacity())
	if err != nil {
		return err
	}
	write := step.SVG
	if c.Trace || c.JSON {
		write = step.Trace
	}
	if c.Output == "" || c.Output == "-" {
		return write(s.out)
	}
	return outfile.Write(c.Output, write)
}
