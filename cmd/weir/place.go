package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"text/tabwriter"
	"time"

	"github.com/weir-ml/weir/internal/placement/exact"
	"github.com/weir-ml/weir/internal/placement/minimalloc"
	"github.com/weir-ml/weir/memory/placement"
	"github.com/weir-ml/weir/schedule/units"
)

// placeCmd solves a placement instance.
type placeCmd struct {
	File   string        `arg:"" help:"The instance, in MiniMalloc's CSV, or - for standard input." predictor:"file"`
	Memory *size         `help:"A height that is low enough, such as 1MiB; by default the search is for the lowest." placeholder:"BYTES"`
	Time   time.Duration `help:"Stop after this time with the best layout so far." default:"60s"`
	Seed   uint64        `help:"Seed of the random choices." default:"0" placeholder:"N"`
	Output string        `help:"Write the instance with its offsets to this file; - is standard output, in place of the outcome." short:"o" placeholder:"FILE"`
	JSON   bool          `help:"Print the outcome as JSON."`
}

// Help returns the text that is printed below the flags.
func (placeCmd) Help() string {
	return `The columns of the file are id, lower, upper and size, and optionally alignment and gaps; lifetimes are half-open. The lower bound is the largest number of bytes alive at once. If the height is above it, optimal means that an exhaustive search found no lower layout. The layout is verified. It depends only on the seed, unless the time limit ends the search.

The exit status is 1 if the height is above --memory.`
}

// placeOutcome is the output of --json.
type placeOutcome struct {
	Height     int64   `json:"height"`
	LowerBound int64   `json:"lower_bound"`
	Gap        float64 `json:"gap"`
	Optimal    bool    `json:"optimal"`
	Feasible   bool    `json:"feasible"`
	Seconds    float64 `json:"seconds"`
	Method     string  `json:"method"`
}

// Run prints the outcome.
func (c *placeCmd) Run(s *streams) error {
	if c.Time <= 0 {
		return usage("--time %v: give a time above 0", c.Time)
	}
	if err := endsIn(c.Output, ".csv"); err != nil && c.Output != "-" {
		return err
	}
	in, err := c.read(s)
	if err != nil {
		return err
	}
	options := placement.Options{Time: c.Time, Nodes: math.MaxInt64, Seed: c.Seed}
	if c.Memory != nil {
		options.Capacity = int64(*c.Memory)
	}
	start := time.Now()
	layout, err := exact.Solve(context.Background(), &in.Problem, options)
	if err != nil {
		return err
	}
	out := &placeOutcome{
		Height: layout.Height, LowerBound: layout.Bound, Gap: layout.Gap(), Optimal: layout.Optimal,
		Feasible: c.Memory == nil || layout.Height <= options.Capacity,
		Seconds:  time.Since(start).Seconds(), Method: layout.Method,
	}
	in.Offsets = layout.Offsets
	if err := c.write(s, in, out); err != nil || out.Feasible {
		return err
	}
	return faults{{Text: fmt.Sprintf("weir: no layout within %d bytes: %s", options.Capacity, layout.Proof)}}
}

// read reads the instance.
func (c *placeCmd) read(s *streams) (*minimalloc.Instance, error) {
	in, err := s.open(c.File)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	instance, err := minimalloc.Read(in)
	return instance, unreadableIf(err, minimalloc.ErrFormat)
}

// write writes the layout if --output is set, and then the outcome, unless the layout went to standard output.
func (c *placeCmd) write(s *streams, in *minimalloc.Instance, out *placeOutcome) error {
	if c.Output != "" {
		err := s.write(c.Output, func(w io.Writer) error { return minimalloc.Write(w, in) })
		if err != nil || c.Output == "-" {
			return err
		}
	}
	if c.JSON {
		return printJSON(s.out, out)
	}
	t := tabwriter.NewWriter(s.text, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "height\t%d\nlower_bound\t%d\ngap\t%s\noptimal\t%v\nfeasible\t%v\nseconds\t%.3f\nmethod\t%s\n",
		out.Height, out.LowerBound, units.Percent(out.Gap, 2), out.Optimal, out.Feasible, out.Seconds, out.Method)
	t.Flush()
	return nil
}
