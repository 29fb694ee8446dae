package main

import (
	"io"
	"os"

	"github.com/weir-ml/weir/schedule/draw"
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
	return writeFile(c.Output, write)
}

// writeFile writes a file, or removes what it could not finish. What is no file, such as
// a device or a pipe, stays.
func writeFile(name string, write func(io.Writer) error) error {
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	info, err := file.Stat()
	if err == nil {
		err = write(file)
	}
	if closed := file.Close(); err == nil {
		err = closed
	}
	if err != nil && info != nil && info.Mode().IsRegular() {
		os.Remove(name) // What is there is not whole.
	}
	return err
}
