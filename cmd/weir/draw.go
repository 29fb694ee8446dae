package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/weir-ml/weir/cmd/weir/internal/raster"
	"github.com/weir-ml/weir/schedule/draw"
	"github.com/weir-ml/weir/schedule/simulate"
)

// drawCmd draws a plan.
type drawCmd struct {
	timedPlan
	To     string `help:"svg and png are pictures; html is a page with the same picture that zooms and pans; perfetto is a JSON trace for Perfetto or chrome://tracing. By default the extension of --output decides: .svg, .png, .html or .json; standard output gets SVG." enum:"auto,svg,png,html,perfetto" default:"auto"`
	Output string `help:"File to write, or - for standard output." short:"o" placeholder:"FILE" default:"-"`
	JSON   bool   `help:"The same as --to perfetto, which is JSON."`
}

// Run writes the picture, the page, or the trace.
func (c *drawCmd) Run(s *streams) error {
	to := c.To
	named := map[string]string{".svg": "svg", ".png": "png", ".html": "html", ".htm": "html", ".json": "perfetto"}[filepath.Ext(c.Output)]
	if to == "auto" {
		to = named
	}
	switch {
	case to != "" && named != "" && named != to:
		return usage("--to %s: %q has the extension of %s: give the file another name, or leave out --to", to, c.Output, named)
	case c.JSON:
		to = "perfetto"
	case to == "" && c.Output == "-":
		to = "svg"
	case to == "":
		return usage("%q does not end in .svg, .png, .html or .json: give --to svg, png, html or perfetto", c.Output)
	}
	if err := jsonEnds(c.JSON, c.Output); err != nil {
		return err
	}
	plan, costs, err := c.provenPlan(s)
	if err != nil {
		return err
	}
	if costs.Microbatch > 0 && plan.OffloadSlots == nil { // without bytes or offloading, draw the microbatches in flight
		costs = withStages(costs, func(s *simulate.StageCosts) { s.Saved, s.FreedByI = 0, 0 })
	}
	step, err := draw.Simulate(plan, costs, plan.Capacity)
	if err != nil {
		return err
	}
	write := map[string]func(io.Writer) error{"svg": step.SVG, "png": asPNG(step.SVG), "html": step.HTML, "perfetto": step.Trace}[to]
	err = s.write(c.Output, write)
	if long, ok := errors.AsType[*draw.TooLongError](err); ok && long.Page {
		return fmt.Errorf("%w, or write a page, -o FILE.html", &draw.TooLongError{Actions: long.Actions, Most: long.Most})
	}
	return err
}

// asPNG converts a function that writes a picture as SVG to one that writes it as PNG.
func asPNG(svg func(io.Writer) error) func(io.Writer) error {
	return func(w io.Writer) error {
		var text bytes.Buffer
		if err := svg(&text); err != nil {
			return err
		}
		return raster.PNG(w, text.Bytes())
	}
}
