package format

import (
	"bufio"
	"strings"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/check"
)

// overlap ends the cell of a joined pair.
const overlap = ")OVERLAP_F_B"

// readCSV reads both of PyTorch's forms, which are lines of cells, one line per rank.
func (f *File) readCSV(options Options) error {
	lines, err := f.lines(options.Ranks)
	if err != nil {
		return err
	}
	r := csvReader{f: f, letters: options.Letters.of(f.text)}
	programs := make([]program, len(lines))
	for rank, line := range lines {
		if programs[rank], err = r.line(line); err != nil {
			return err
		}
	}
	if err := f.setPlan(lines, programs, options, nil); err != nil || f.Format == Compute {
		return err
	}
	return f.requireTransfers()
}

// requireTransfers returns an error for a file in the Comms form that needs transfers but contains none.
// PyTorch would run it and send nothing.
func (f *File) requireTransfers() error {
	kinds := f.Plan.Kinds()
	if kinds[schedule.SendF] || kinds[schedule.RecvF] || kinds[schedule.SendB] || kinds[schedule.RecvB] {
		return nil
	}
	stage, crosses := crossing(f.Plan.Placement)
	if !crosses {
		return nil
	}
	advice := "this is a compute-only plan: read it as compute, and lower.Transfers adds them"
	if kinds[schedule.Unshard] || kinds[schedule.Reshard] || kinds[schedule.ReduceGrad] {
		advice = "this is a compute-only plan except for UNSHARD, RESHARD and REDUCE_GRAD: remove them and read it as compute, and lower.Transfers adds them"
	}
	return f.fault(0, "found no SEND and no RECV, expected some, as stages %d and %d are on ranks %d and %d: %s",
		stage, stage+1, f.Plan.Placement.Rank[stage], f.Plan.Placement.Rank[stage+1], advice)
}

// csvReader reads cells.
type csvReader struct {
	f       *File
	letters Letters
}

// line reads the cells of a rank.
func (r *csvReader) line(line line) (program, error) {
	text := r.f.text[line.start:line.end]
	p := newProgram(strings.Count(text, ",")+1, len(text))
	if strings.TrimSpace(text) == "" {
		return p, nil
	}
	for offset, more := line.start, true; more; {
		var cell string
		cell, text, more = strings.Cut(text, ",")
		trimmed := strings.TrimLeft(cell, " \t")
		if err := r.cell(&p, strings.TrimRight(trimmed, " \t\r"), offset+len(cell)-len(trimmed)); err != nil {
			return p, err
		}
		offset += len(cell) + 1
	}
	return p, nil
}

// cell reads one cell: empty, an action, or a pair, with or without double quotes.
func (r *csvReader) cell(p *program, cell string, offset int) error {
	if len(cell) > 1 && cell[0] == '"' && cell[len(cell)-1] == '"' {
		cell, offset = cell[1:len(cell)-1], offset+1
	}
	if cell == "" {
		if r.f.Format == Comms {
			return r.f.fault(offset, "found an empty cell, expected an action: only a compute-only file has idle ticks")
		}
		return nil
	}
	inside, pair := strings.CutPrefix(cell, "(")
	if !pair {
		a, err := r.action(cell, offset)
		if err != nil {
			return err
		}
		return r.f.add(p, a, offset)
	}
	inside, closed := strings.CutSuffix(inside, overlap)
	first, second, two := strings.Cut(inside, ";")
	if !closed || !two {
		return r.f.fault(offset, "found %s, expected a joined pair such as (0F7;7B3)OVERLAP_F_B", quote(cell))
	}
	for i, text := range [...]string{first, second} {
		offset++ // skips the bracket or the semicolon
		a, err := r.action(text, offset)
		if err != nil {
			return err
		}
		if !a.Kind().Compute() {
			return r.f.fault(offset, "found %s, expected F, B, I or W: only computations are joined", quote(text))
		}
		if err := r.f.add(p, a.WithJoin(i == 0), offset); err != nil {
			return err
		}
		offset += len(text)
	}
	return nil
}

// action reads an action, alone or in a pair.
func (r *csvReader) action(text string, offset int) (schedule.Action, error) {
	a, old, err := r.letters.action(text)
	switch {
	case err == nil:
	case strings.HasPrefix(text, `"`):
		return 0, r.f.fault(offset, "found %s, expected an action such as %s, alone in its quotes", quote(text), examples[r.f.Format])
	case r.letters == TodaysLetters && strings.Contains(text, "BW"):
		return 0, r.f.fault(offset, "found %s, expected today's letters, as in the options: they have B and no BW", quote(text))
	default:
		return 0, r.f.fault(offset, "found %s, expected an action such as %s: stage up to %d, kind, microbatch up to %d",
			quote(text), examples[r.f.Format], schedule.MaxStages-1, schedule.MaxMicrobatches-1)
	}
	r.f.OldLetters = r.f.OldLetters || old
	if included, _ := r.f.Format.includes(a.Kind()); !included {
		return 0, r.f.fault(offset, "found %s, expected %s", quote(text), vocabulary[r.f.Format])
	}
	return a, nil
}

// examples and vocabulary hold the actions that errors mention for each form.
var (
	examples   = map[Format]string{Compute: "2F0", Comms: "2F0 or 1SEND_F3"}
	vocabulary = map[Format]string{
		Compute: "F, B, I or W: a compute-only file has no other actions",
		Comms:   "F, B, I, W, a SEND, a RECV, UNSHARD, RESHARD, REDUCE_GRAD or QUANTIZE",
	}
)

// refuseCSV returns an error if the form cannot express the plan, whatever the order of its actions.
func refuseCSV(plan *schedule.Plan, format Format) error {
	kinds := plan.Kinds()
	if kinds[schedule.B] && kinds[schedule.W] && !kinds[schedule.I] {
		return refuse(format, "the plan has B and W and no I, which would be read as the letters of 2024")
	}
	if format == Compute {
		return nil
	}
	if kinds[schedule.SendF] || kinds[schedule.RecvF] {
		return refuseQueues(plan)
	}
	if _, crosses := crossing(plan.Placement); crosses {
		return refuse(Comms, "the plan has stages on several ranks and no transfers: give it to lower.Transfers first")
	}
	return nil
}

// refuseQueues returns an error if PyTorch would match sends and receives differently than the plan does.
// PyTorch matches those between two ranks by order alone. An invalid plan is not refused.
func refuseQueues(plan *schedule.Plan) error {
	if plan.Runtime == schedule.PyTorch || check.Plan(plan) != nil {
		return nil
	}
	shared := *plan
	shared.Runtime = schedule.PyTorch
	if err := check.Plan(&shared); err != nil {
		return refuse(Comms, "between two ranks the plan needs one queue for outputs and one for gradients, and PyTorch has one for both: give it to lower.For: %v", err)
	}
	return nil
}

// crossing returns the first stage whose next stage is on another rank.
func crossing(place schedule.Placement) (stage int, crosses bool) {
	for stage, rank := range place.Rank {
		if !place.Last(stage) && place.Rank[stage+1] != rank {
			return stage, true
		}
	}
	return 0, false
}

// writeCells writes the cells of a rank.
func writeCells(b *bufio.Writer, plan *schedule.Plan, rank int, format Format) error {
	var buf []byte
	separator, open := "", false // open: the previous action is joined with this one
	for a := range plan.All(rank) {
		included, refused := format.includes(a.Kind())
		if refused {
			return refuse(format, "%v on rank %d has a kind that PyTorch does not have", a, rank)
		}
		if (open || a.Joined()) && !a.Kind().Compute() || open && a.Joined() {
			return refuse(format, "%v on rank %d is in a joined group that is not a pair of computations", a, rank)
		}
		if !included {
			continue
		}
		b.WriteString(separator)
		if a.Joined() {
			b.WriteByte('(')
		}
		buf, _ = a.WithDrop(0).WithJoin(false).AppendText(buf[:0])
		b.Write(buf)
		separator = ","
		switch {
		case a.Joined():
			separator = ";"
		case open:
			b.WriteString(overlap)
		}
		open = a.Joined()
	}
	if open {
		return refuse(format, "the last action of rank %d is joined, but no action follows it", rank)
	}
	return nil
}
