package format

import (
	"bufio"
	"iter"
	"slices"
	"strings"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/check"
	"github.com/weir-ml/weir/schedule/internal/passes"
)

// overlap ends the cell of a joined pair.
const overlap = ")OVERLAP_F_B"

// readCSV reads PyTorch's forms, which are lines of cells, one line per rank.
func (f *File) readCSV(options Options) error {
	r := csvReader{f: f, letters: options.Letters.of(f.text)}
	lines, programs, err := r.lines(options.Ranks)
	if err != nil {
		return err
	}
	f.Released = f.Format == Comms26 && released(programs)
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

// lines reads the programs of all ranks, which are lines of cells or the columns of a table.
func (r *csvReader) lines(ranks int) (lines []line, programs []program, err error) {
	if isTable(r.f.text) {
		lines, programs, err = r.table()
		if err == nil && ranks > 0 && ranks != len(lines) {
			err = r.f.fault(0, "found a table of %d ranks, expected %d, as in the options", len(lines), ranks)
		}
		return lines, programs, err
	}
	if lines, err = r.f.lines(ranks); err != nil {
		return nil, nil, err
	}
	programs = make([]program, len(lines))
	for rank, line := range lines {
		if programs[rank], err = r.line(line); err != nil {
			return nil, nil, err
		}
	}
	return lines, programs, nil
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
		if r.f.Format.communicates() {
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

// action reads an action that is alone in its cell or belongs to a pair.
func (r *csvReader) action(text string, offset int) (schedule.Action, error) {
	spelled := text
	if name := strings.Trim(text, "0123456789"); strings.HasPrefix(name, "WAIT_") {
		own, known := ownWaits[name]
		if !known {
			return 0, r.f.fault(offset, "found %s, expected %s", quote(text), vocabulary[r.f.Format])
		}
		spelled = strings.Replace(text, name, own, 1)
	}
	a, old, err := r.letters.action(spelled)
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
	reduces := a.Kind() == schedule.ReduceGrad || a.Kind() == schedule.WaitReduce
	if included, _ := r.f.Format.includes(a.Kind()); !included && !(r.f.Format == Compute && reduces) {
		return 0, r.f.fault(offset, "found %s, expected %s", quote(text), vocabulary[r.f.Format])
	}
	return a, nil
}

// examples and vocabulary hold the actions that errors mention for each form.
var (
	examples   = map[Format]string{Compute: "2F0", Comms: "2F0 or 1SEND_F3", Comms26: "2F0 or 1SEND_F3"}
	vocabulary = map[Format]string{
		Compute: "F, B, I or W: a compute-only file has no other actions",
		Comms:   "F, B, I, W, a SEND, a RECV, UNSHARD, RESHARD, REDUCE_GRAD, WAIT_SEND_F, WAIT_SEND_B, WAIT_REDUCE_GRAD or QUANTIZE",
		Comms26: "F, B, I, W, a SEND, a RECV, UNSHARD, RESHARD, REDUCE_GRAD or QUANTIZE: comms-2.6 has no waits",
	}
)

// ownWaits maps PyTorch's names of waits to the names of the kinds.
var ownWaits = map[string]string{"WAIT_SEND_F": "WAIT_F", "WAIT_SEND_B": "WAIT_B", "WAIT_REDUCE_GRAD": "WAIT_REDUCE"}

// inPyTorch replaces the names of kinds in a text with PyTorch's names.
var inPyTorch = strings.NewReplacer("WAIT_F", "WAIT_SEND_F", "WAIT_B", "WAIT_SEND_B", "WAIT_REDUCE", "WAIT_REDUCE_GRAD")

// Spell returns a text about the plan, such as a fault, with the actions in it spelled as in the file.
func (f *File) Spell(text string) string {
	if f.Format == Compute || f.Format.communicates() {
		return inPyTorch.Replace(text)
	}
	return text
}

// refuseCSV returns an error if the form cannot express the plan, whatever the order of its actions.
func refuseCSV(plan *schedule.Plan, format Format) error {
	kinds := plan.Kinds()
	if kinds[schedule.B] && kinds[schedule.W] && !kinds[schedule.I] {
		return refuse(format, "the plan has B and W and no I, which would be read as the letters of 2024")
	}
	listed := false
	for kind, has := range kinds {
		included, _ := format.includes(schedule.Kind(kind))
		listed = listed || has && included
	}
	switch {
	case !listed:
		return refuse(format, "the plan has no actions that the form lists")
	case format == Compute:
		return nil
	}
	if kinds[schedule.SendF] || kinds[schedule.RecvF] {
		return refuseQueues(plan, format)
	}
	if _, crosses := crossing(plan.Placement); crosses {
		return refuse(format, "the plan has stages on several ranks and no transfers: give it to lower.Transfers first")
	}
	return nil
}

// refuseQueues returns an error if PyTorch would match sends and receives differently than the plan does.
// PyTorch matches the transfers between two ranks only by their order. refuseQueues does not refuse plans that are
// for PyTorch already, or invalid.
func refuseQueues(plan *schedule.Plan, format Format) error {
	if plan.Runtime.Posts() || check.Plan(plan) != nil {
		return nil
	}
	shared := *plan
	shared.Runtime = schedule.PyTorch
	if err := check.Plan(&shared); err != nil {
		return refuse(format, "between two ranks the plan needs one queue for outputs and one for gradients, and PyTorch has one for both: give it to lower.ForRuntime: %v", err)
	}
	return nil
}

// crossing returns the first stage whose next stage is on another rank, and whether there is one.
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
	actions := plan.All(rank)
	has := plan.Kinds()
	if format == Comms && (plan.Runtime == schedule.Weir || !has[schedule.WaitF] && !has[schedule.WaitB] && !has[schedule.WaitReduce]) {
		actions = withWaits(actions)
	}
	for a := range actions {
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
		if waits(a) {
			buf = append(buf[:0], inPyTorch.Replace(string(buf))...)
		}
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

// waits reports whether an action waits for a send or a reduction.
func waits(a schedule.Action) bool {
	return a.Kind() == schedule.WaitF || a.Kind() == schedule.WaitB || a.Kind() == schedule.WaitReduce
}

// withWaits returns the actions of a rank with a wait for each of its sends and reductions. A wait that
// the plan lacks comes as late as PyTorch allows: a wait for a reduction comes before the next reduction, and all
// others come at the end.
func withWaits(actions iter.Seq[schedule.Action]) iter.Seq[schedule.Action] {
	waited := map[schedule.Action]bool{}
	for a := range actions {
		if waits(a) {
			waited[a.WithDrop(0)] = true
		}
	}
	var list, due []schedule.Action
	var reduction schedule.Action // the wait for a reduction that is due, or 0
	for a := range actions {
		var wait schedule.Action
		switch a.Kind() {
		case schedule.SendF, schedule.SendB:
			wait = passes.WaitFor(a)
		case schedule.ReduceGrad:
			wait = schedule.NewAction(schedule.WaitReduce, a.Stage(), 0)
			if reduction != 0 {
				list, reduction = append(list, reduction), 0
			}
		}
		list = append(list, a)
		switch {
		case wait == 0 || waited[wait]:
		case a.Kind() == schedule.ReduceGrad:
			reduction = wait
		default:
			due = append(due, wait)
		}
	}
	if reduction != 0 {
		due = append(due, reduction)
	}
	return slices.Values(append(list, due...))
}
