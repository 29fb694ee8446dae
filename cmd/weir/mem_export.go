package main

import (
	"bufio"
	"fmt"
	"io"
	"path/filepath"

	"github.com/weir-ml/weir/internal/formats/chrometrace"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/memory/snapshot"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/layout"
)

// memExportCmd writes the allocations of a planned step in formats of other tools.
type memExportCmd struct {
	layoutFlags
	To     string `help:"snapshot is a PyTorch snapshot for pytorch.org/memory_viz; perfetto has counters by class; csv has a line for every allocation and release. By default the extension of --output decides: .pickle, .json or .csv." enum:"auto,snapshot,perfetto,csv" default:"auto"`
	Output string `short:"o" help:"File to write, or - for standard output." placeholder:"FILE" default:"-"`
}

// Help returns the text that is printed below the flags.
func (memExportCmd) Help() string {
	return `Writes every allocation of the step at its planned offset: ranks are devices, and the time is the number of the event. To export a measured log, use weir mem log with --csv and --trace.`
}

// Run plays the step and writes it.
func (c *memExportCmd) Run(s *streams) error {
	if flag := c.timed(); flag != "" {
		return usage("%s: an export depends on no time: leave it out", flag)
	}
	write, err := c.writer()
	if err != nil {
		return err
	}
	plan, made, err := c.layOut(s)
	if err != nil {
		return err
	}
	return s.write(c.Output, func(w io.Writer) error { return write(w, plan, made) })
}

// writer returns the function that writes the requested form.
func (c *memExportCmd) writer() (func(io.Writer, *schedule.Plan, *layout.Memory) error, error) {
	to, named := c.To, map[string]string{".pickle": "snapshot", ".pkl": "snapshot", ".json": "perfetto", ".csv": "csv"}[filepath.Ext(c.Output)]
	if to == "auto" {
		to = named
	}
	write := map[string]func(io.Writer, *schedule.Plan, *layout.Memory) error{"snapshot": planSnapshot, "perfetto": planTrace, "csv": planCSV}[to]
	switch {
	case named != "" && named != to:
		return nil, usage("--to %s: %q has the extension of %s: give the file another name, or leave out --to", to, c.Output, named)
	case write != nil:
		return write, nil
	case c.Output == "-":
		return nil, usage("give --to snapshot, perfetto or csv, or give --output a file that ends in .pickle, .json or .csv")
	}
	return nil, usage("%q does not end in .pickle, .json or .csv: give --to snapshot, perfetto or csv", c.Output)
}

// maxChanges is the maximum number of allocations and releases in an export. Viewers already fail with
// fewer.
const maxChanges = 4 << 20

// exported is one allocation of a planned step, or its release.
type exported struct {
	layout.Change
	rank   int
	number int             // among the changes of the rank
	action schedule.Action // none at step end
	live   int64           // bytes on the rank after it
}

// changes plays the step of every rank, and calls visit for every change.
func changes(plan *schedule.Plan, made *layout.Memory, visit func(exported) error) error {
	total, programs := 0, plan.Flat().Programs
	for rank := range made.Ranks {
		e := exported{rank: rank}
		for change := range made.All(rank) {
			if total++; total > maxChanges {
				return usage("the step has more than %d allocations and frees: export fewer microbatches; the rest repeats", maxChanges)
			}
			e.Change = change
			e.action, _ = made.Ranks[rank].Action(programs[rank], change.Place)
			if change.Alloc {
				e.live += change.Bytes
			} else {
				e.live -= change.Bytes
			}
			if err := visit(e); err != nil {
				return err
			}
			e.number++
		}
	}
	return nil
}

// location returns the location of an allocation in the form of a file name: mb3/stage1/F.
func (e *exported) location() string {
	name := ""
	if e.Microbatch >= 0 {
		name = fmt.Sprintf("mb%d/", e.Microbatch)
	}
	if e.Stage >= 0 {
		name += fmt.Sprintf("stage%d/", e.Stage)
	}
	if e.action == 0 {
		return name + "end"
	}
	return name + e.action.Kind().String()
}

// firstArena is the address of rank 0's arena in a snapshot; the other arenas follow at the
// same distance. The viewer uses floating point, which is exact up to 2^53.
const firstArena = 1 << 44

// planSnapshot writes a step as PyTorch would have recorded it: with one device for each rank, whose arena
// is one segment, and with one unit of time for each event. The line number of a frame is the number of the
// allocation within its action.
func planSnapshot(w io.Writer, plan *schedule.Plan, made *layout.Memory) error {
	s := &snapshot.Snapshot{Traces: make([][]snapshot.TraceEntry, len(made.Ranks))}
	arena := func(rank int) int64 { return int64(rank+1) * firstArena }
	for rank := range made.Ranks {
		height := made.Ranks[rank].Height
		if height == 0 {
			continue
		}
		s.Segments = append(s.Segments, snapshot.Segment{
			Device: rank, Address: arena(rank), Size: height,
			Blocks: []snapshot.Block{{Address: arena(rank), Size: height, State: snapshot.Inactive}},
		})
		s.Traces[rank] = []snapshot.TraceEntry{{Action: snapshot.SegmentAlloc, Address: arena(rank), Size: height}}
	}
	var frames [][]snapshot.Frame // of the rank's allocations, by serial
	rank, location, births := -1, "", 0
	err := changes(plan, made, func(e exported) error {
		if e.rank != rank {
			rank, location, frames = e.rank, "", nil
		}
		if e.Alloc {
			if births++; e.location() != location {
				location, births = e.location(), 1
			}
			frames = append(frames, []snapshot.Frame{{Name: e.Class.String() + ":" + made.Name(e.Change), Filename: location, Line: births}})
		}
		entry := snapshot.TraceEntry{Address: arena(rank) + e.Offset, Size: e.Bytes, Time: int64(e.number + 1), Frames: frames[e.Serial]}
		actions := []snapshot.Action{snapshot.FreeRequested, snapshot.FreeCompleted}
		if e.Alloc {
			actions = []snapshot.Action{snapshot.Alloc}
		}
		for _, entry.Action = range actions {
			s.Traces[rank] = append(s.Traces[rank], entry)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return snapshot.Write(w, s)
}

// planTrace writes the levels of every rank, by class, as counters for Perfetto. One change
// takes a microsecond.
func planTrace(w io.Writer, plan *schedule.Plan, made *layout.Memory) error {
	out := chrometrace.New(w)
	for rank := range made.Ranks {
		out.Label("process_name", rank, 0, fmt.Sprintf("rank %d, planned", rank))
	}
	levels := make([]memory.ByClass, len(made.Ranks))
	err := changes(plan, made, func(e exported) error {
		level := &levels[e.rank]
		if e.Alloc {
			level[e.Class] += e.Bytes
		} else {
			level[e.Class] -= e.Bytes
		}
		var values []chrometrace.Counter
		for class := range memory.Class(memory.NumClasses) {
			if class != memory.Resident {
				values = append(values, chrometrace.Counter{Name: class.String(), Value: level[class]})
			}
		}
		return out.Count("step", e.rank, chrometrace.Time(e.number), values...)
	})
	if err != nil {
		return err
	}
	return out.Close()
}

// planCSV writes a line for every allocation and release.
func planCSV(w io.Writer, plan *schedule.Plan, made *layout.Memory) error {
	out := bufio.NewWriter(w)
	out.WriteString("rank,change,what,buffer,bytes,offset,class,at,name,live\n")
	err := changes(plan, made, func(e exported) error {
		what := "free"
		if e.Alloc {
			what = "alloc"
		}
		_, err := fmt.Fprintf(out, "%d,%d,%s,%d,%d,%d,%s,%s,%q,%d\n", e.rank, e.number, what, e.Serial, e.Bytes, e.Offset, e.Class, e.location(), made.Name(e.Change), e.live)
		return err
	})
	if err != nil {
		return err
	}
	return out.Flush()
}
