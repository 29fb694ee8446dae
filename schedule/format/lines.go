package format

import (
	"strings"

	"github.com/weir-ml/weir/schedule"
)

// line is the range [start, end) of a rank's text in the file.
type line struct{ start, end int }

// lines returns the ranks' lines. If ranks is not 0, it is the required number. Blank lines at the end of
// the file count as ranks' lines only if they are needed to reach that number.
func (f *File) lines(ranks int) ([]line, error) {
	var lines []line
	last := 0 // number of lines up to the last one that is not blank
	start := 0
	for text := range strings.Lines(f.text) {
		if len(lines) == schedule.MaxStages {
			return nil, f.fault(start, "found line %d, expected at most %d ranks", len(lines)+1, schedule.MaxStages)
		}
		lines = append(lines, line{start, start + len(strings.TrimSuffix(text, "\n"))})
		if strings.TrimSpace(text) != "" {
			last = len(lines)
		}
		start += len(text)
	}
	if ranks == 0 {
		ranks = max(last, 1)
	}
	switch {
	case last > ranks:
		return nil, f.fault(lines[ranks].start, "found a line for rank %d, expected %d ranks, as in the options", ranks, ranks)
	case len(lines) < ranks:
		return nil, f.fault(len(f.text), "found the end of the file, expected a line for rank %d", len(lines))
	}
	return lines[:ranks], nil
}

// program holds the actions of a rank and their offsets.
type program struct {
	actions []schedule.Action
	offsets []uint32
}

// add adds an action, or returns a fault if there are too many.
func (f *File) add(p *program, a schedule.Action, offset int) error {
	if f.written++; f.written > schedule.MaxWritten {
		return f.fault(offset, "found action %d of the file, expected at most %d: write the plan as segments, in the text form or as JSON", f.written, schedule.MaxWritten)
	}
	p.actions = append(p.actions, a)
	p.offsets = append(p.offsets, uint32(offset))
	return nil
}

// newProgram returns a program with room for the actions of a line. An action takes at least three bytes
// and a separator.
func newProgram(most, bytes int) program {
	n := min(most, bytes/4+1, schedule.MaxWritten)
	return program{make([]schedule.Action, 0, n), make([]uint32, 0, n)}
}

// setPlan makes the programs the plan of the file, and derives the rest of the plan. place returns the
// placement; if it is nil, each stage is on the rank with most of its actions.
func (f *File) setPlan(lines []line, programs []program, options Options, place func(ranks, stages int) schedule.Placement) error {
	plan := &schedule.Plan{Name: f.title(), Slices: options.Slices, Frozen: options.Frozen}
	for rank, p := range programs {
		var segments []schedule.Segment
		if len(p.actions) > 0 {
			segments = []schedule.Segment{{Body: p.actions, Repeat: 1}}
		}
		plan.Programs = append(plan.Programs, segments)
		f.offsets = append(f.offsets, p.offsets)
		f.starts = append(f.starts, uint32(lines[rank].start))
	}
	stages, microbatches := extent(programs)
	if stages == 0 {
		return f.fault(len(f.text), "found the end of the file, expected an action")
	}
	if options.Stages > 0 {
		stages = options.Stages
	}
	f.inferred = options.Microbatches == 0
	if !f.inferred {
		microbatches = options.Microbatches
	}
	plan.Microbatches = microbatches
	plan.Mode = schedule.ForwardOnly
	if has := plan.Kinds(); has[schedule.B] || has[schedule.I] || has[schedule.W] {
		plan.Mode = schedule.Training
	}
	if place != nil {
		plan.Placement = place(len(programs), stages)
	} else {
		plan.Placement = schedule.Placement{Ranks: len(programs), Rank: majorityRanks(programs, stages)}
		if twoCopies(programs, stages, microbatches) {
			plan.Placement.Copies = 2
		}
	}
	f.Plan = plan
	return nil
}
