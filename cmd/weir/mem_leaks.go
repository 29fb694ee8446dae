package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"text/tabwriter"

	"github.com/weir-ml/weir/cmd/weir/internal/leaks"
	"github.com/weir-ml/weir/memory/snapshot"
	"github.com/weir-ml/weir/schedule/units"
)

// memLeaksCmd finds growth in a PyTorch memory snapshot.
type memLeaksCmd struct {
	File         string `arg:"" name:"snapshot" predictor:"file" help:"A snapshot written by torch.cuda.memory._dump_snapshot, possibly compressed by gzip, or - for standard input."`
	Microbatches int    `help:"Number of microbatches in the trace, over all its steps; by default it is detected." placeholder:"M"`
	Top          int    `help:"Number of groups to show of live blocks that do not grow." default:"5" placeholder:"N"`
	JSON         bool   `help:"Print the findings as JSON."`
	growthStatus
}

// Help returns the text that is printed below the flags.
func (memLeaksCmd) Help() string {
	return `The exit status is 1 if something grows with microbatches, and 0 if nothing does.`
}

// Run prints the findings.
func (c *memLeaksCmd) Run(s *streams) error {
	switch {
	case c.Microbatches < 0:
		return usage("--microbatches %d: give 1 or more, or leave out the flag", c.Microbatches)
	case c.Top < 0:
		return usage("--top %d: give 0 or more", c.Top)
	}
	in, err := s.open(c.File)
	if err != nil {
		return err
	}
	defer in.Close()
	read, err := snapshot.Read(in, snapshot.Limits{})
	if _, unreadable := errors.AsType[*fs.PathError](err); unreadable {
		return err
	}
	if err == nil {
		var found *leaks.Report
		if found, err = leaks.Find(read, leaks.Options{Microbatches: c.Microbatches}); err == nil {
			return c.report(s, found)
		}
	}
	return unreadable{{File: in.name, Text: err.Error()}}
}

// report prints the findings.
func (c *memLeaksCmd) report(s *streams, found *leaks.Report) error {
	if c.JSON {
		if err := printJSON(s.out, found); err != nil {
			return err
		}
	} else {
		t := tabwriter.NewWriter(s.text, 0, 0, 2, ' ', 0)
		for i := range found.Devices {
			if i > 0 {
				fmt.Fprintln(t)
			}
			c.printDevice(t, &found.Devices[i])
		}
		t.Flush()
	}
	return c.status(slices.ContainsFunc(found.Devices, func(d leaks.Device) bool { return len(d.Growing) > 0 }))
}

// printDevice prints the findings about a device: the growth, what the trace cannot show, the blocks that
// keep memory reserved, and advice. Tabs separate the cells of tables.
func (c *memLeaksCmd) printDevice(w io.Writer, d *leaks.Device) {
	fmt.Fprintf(w, "device %d: %s events, %s live of %s reserved\n", d.Device, units.Count(int64(d.Entries)), units.Size(d.Live), units.Size(d.Reserved))
	c.printPeriod(w, d)
	if len(d.Growing) > 0 {
		fmt.Fprintf(w, "\ngrows by %s a microbatch:\n", units.Size(d.Total()))
		fmt.Fprintln(w, "each\tin microbatches\tsince\tlive now\tplace\tallocated at\tcalled from")
		for _, g := range d.Growing {
			fmt.Fprintf(w, "%s\t%d of %d\t%d\t%s\t%d of %d\t%s\t%s\n", units.Size(g.Each), g.Count, d.Microbatches, g.First, blockCount(&g), g.Place+1, g.Of, g.Site, g.Site.Caller())
		}
	} else if d.Microbatches > 0 {
		fmt.Fprintln(w, "nothing grows with microbatches")
	}
	switch b := &d.Before; {
	case b.Full:
		fmt.Fprintf(w, "\nthe ring was full: %d live blocks (%s) were recorded, but the trace no longer has their allocations; they cannot be judged. "+
			"Raise max_entries of _record_memory_history.\n", b.Blocks, units.Size(b.Bytes))
	case b.Blocks > 0 || b.Frees > 0:
		fmt.Fprintf(w, "\nsome blocks were live before recording began: %d (%s) still are, and %d have been freed since. They are not judged.\n", b.Blocks, units.Size(b.Bytes), b.Frees)
	default:
		fmt.Fprintln(w, "\nthe trace is whole: it has the allocation of everything that is live")
	}
	if shown := d.Standing[:min(len(d.Standing), c.Top)]; len(shown) > 0 {
		fmt.Fprintln(w, "\nlive and not growing:")
		for _, g := range shown {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", units.Size(g.Bytes), blockCount(&g), g.Site, g.Site.Caller())
		}
		if rest := len(d.Standing) - len(shown); rest > 0 {
			fmt.Fprintf(w, "and %d smaller groups\n", rest)
		}
	}
	if p := &d.Pins; p.Segments > 0 {
		fmt.Fprintf(w, "\n%d blocks (%s) keep %d segments (%s reserved) that are free for more than three quarters:\n",
			p.Blocks, units.Size(p.Live), p.Segments, units.Size(p.Reserved))
		for _, site := range p.Sites[:min(len(p.Sites), 5)] {
			fmt.Fprintf(w, "%d blocks, %s\tkeep %d segments, %s\t%s\t%s\n", site.Blocks, units.Size(site.Live), site.Segments, units.Size(site.Reserved), site.Site, site.Site.Caller())
		}
	}
	advise(w, d)
}

// printPeriod prints how the trace was divided among microbatches.
func (c *memLeaksCmd) printPeriod(w io.Writer, d *leaks.Device) {
	switch {
	case d.Microbatches == 0:
		fmt.Fprintln(w, "no period was found in the trace: give --microbatches M")
	case c.Microbatches > 0 && d.Anchor != nil:
		fmt.Fprintf(w, "%d microbatches, cut at the calls of %s\n", d.Microbatches, d.Anchor)
	case c.Microbatches > 0:
		fmt.Fprintf(w, "%d microbatches, cut evenly: no site is called that often throughout the trace\n", d.Microbatches)
	default:
		fmt.Fprintf(w, "found %d microbatches: %s is called that often, at even distances. If each call is a layer or a step instead of a microbatch, give --microbatches M.\n", d.Microbatches, d.Anchor)
		for _, c := range d.Candidates[1:min(len(d.Candidates), 6)] {
			fmt.Fprintf(w, "--microbatches %d: %s is called that often, at even distances\n", c.Microbatches, c.Site)
		}
	}
}

// blockCount returns the number and size of the live blocks of a group.
func blockCount(g *leaks.Group) string {
	text := fmt.Sprintf("%d x %s", g.Blocks, units.Size(g.Size))
	if g.Most > g.Size {
		text = fmt.Sprintf("%d of %s to %s", g.Blocks, units.Size(g.Size), units.Size(g.Most))
	}
	if g.Before > 0 {
		text += fmt.Sprintf(" (and %d from before the trace)", g.Before)
	}
	return text
}

// advise prints what to do about growing allocations and about segments that blocks keep reserved.
func advise(w io.Writer, d *leaks.Device) {
	if len(d.Growing) > 0 {
		g := &d.Growing[0]
		fmt.Fprintf(w, "\nnext: find the reference that keeps the allocations of %s after their microbatch: a list of losses, an attribute of a module or of an autograd context, a closure, a cache.\n", g.Site)
		if len(g.Site.Frames) == 0 {
			fmt.Fprintln(w, "The trace has no call stacks: record it with stacks=\"all\".")
		}
	}
	if p := &d.Pins; p.Segments > 0 && p.Reserved > d.Reserved/4 {
		fmt.Fprintln(w, "\nnext: allocate what lives long before the step, or drop it before empty_cache: a small block that is born in mid-step keeps its whole segment.")
	}
}
