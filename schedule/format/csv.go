package format

import (
	"bufio"
	"strings"

	"github.com/weir-ml/weir/schedule"
)

// overlap is what stands behind the brackets of a joined pair.
const overlap = ")OVERLAP_F_B"

// oldLetters reports whether a text has PyTorch's letters of 2024 and before: BW for
// the full backward and B for the input gradient. It has them where BW appears, or
// where W stands without I. No other word of these forms has an I or a W.
func oldLetters(text string) bool {
	return strings.Contains(text, "BW") || strings.Contains(text, "W") && !strings.Contains(text, "I")
}

// readCSV reads both of PyTorch's forms: lines of cells, one line for each rank.
func (f *File) readCSV(options Options) error {
	lines, err := f.lines(options.Ranks)
	if err != nil {
		return err
	}
	r := csvReader{f: f, old: oldLetters(f.text)}
	programs := make([]program, len(lines))
	for rank, line := range lines {
		if programs[rank], err = r.line(line); err != nil {
			return err
		}
	}
	return f.keep(lines, programs, options, nil)
}

// csvReader reads cells.
type csvReader struct {
	f   *File
	old bool
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

// cell reads one cell: nothing, an action, or a pair.
func (r *csvReader) cell(p *program, cell string, offset int) error {
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
		p.add(a, offset)
		return nil
	}
	inside, closed := strings.CutSuffix(inside, overlap)
	first, second, two := strings.Cut(inside, ";")
	if !closed || !two {
		return r.f.fault(offset, "found %s, expected a joined pair such as (0F7;7B3)OVERLAP_F_B", quote(cell))
	}
	for i, text := range [...]string{first, second} {
		offset++ // the bracket, or the semicolon
		a, err := r.action(text, offset)
		if err != nil {
			return err
		}
		if !a.Kind().Compute() {
			return r.f.fault(offset, "found %s, expected F, B, I or W: only computations are joined", quote(text))
		}
		p.add(a.WithJoin(i == 0), offset)
		offset += len(text)
	}
	return nil
}

// action reads an action, alone or of a pair.
func (r *csvReader) action(text string, offset int) (schedule.Action, error) {
	letters := text
	if r.old {
		letters = strings.Replace(text, "BW", "B", 1)
	}
	a, err := schedule.ParseAction(letters)
	if err != nil {
		return 0, r.f.fault(offset, "found %s, expected an action such as %s: stage up to %d, kind, microbatch up to %d",
			quote(text), examples[r.f.Format], schedule.MaxStages-1, schedule.MaxMicrobatches-1)
	}
	if r.old && a.Kind() == schedule.B && letters == text {
		a = schedule.Act(schedule.I, a.Stage(), a.Microbatch())
	}
	if has, _ := r.f.Format.has(a.Kind()); !has {
		return 0, r.f.fault(offset, "found %s, expected %s", quote(text), vocabulary[r.f.Format])
	}
	return a, nil
}

// examples and vocabulary are what errors name as actions of the forms.
var (
	examples   = map[Format]string{Compute: "2F0", Comms: "2F0 or 1SEND_F3"}
	vocabulary = map[Format]string{
		Compute: "F, B, I or W: a compute-only file has no other actions",
		Comms:   "F, B, I, W, a SEND, a RECV, UNSHARD, RESHARD or REDUCE_GRAD",
	}
)

// refuseCSV says why a plan has neither of PyTorch's forms, whatever the order.
func refuseCSV(plan *schedule.Plan, format Format) error {
	var there [schedule.NumKinds]bool
	for _, program := range plan.Programs {
		for _, segment := range program {
			for _, a := range segment.Body {
				if int(a.Kind()) < schedule.NumKinds {
					there[a.Kind()] = true
				}
			}
		}
	}
	if there[schedule.B] && there[schedule.W] && !there[schedule.I] {
		return refuse(format, "the plan has B and W and no I, which would be read as the letters of 2024")
	}
	if format == Compute || there[schedule.SendF] || there[schedule.RecvF] {
		return nil
	}
	for stage, rank := range plan.Placement.Rank {
		if !plan.Placement.Last(stage) && plan.Placement.Rank[stage+1] != rank {
			return refuse(Comms, "the plan has stages on several ranks and no transfers: give it to schedule.Comms first")
		}
	}
	return nil
}

// writeCells writes the cells of a rank.
func writeCells(b *bufio.Writer, plan *schedule.Plan, rank int, format Format) error {
	var buf []byte
	before, open := "", false // open: the action before is joined with this one
	for a := range plan.All(rank) {
		has, refused := format.has(a.Kind())
		if refused {
			return refuse(format, "%v on rank %d has a kind that PyTorch does not know", a, rank)
		}
		if (open || a.Joined()) && !a.Kind().Compute() || open && a.Joined() {
			return refuse(format, "%v on rank %d is in a joined group that is not a pair of computations", a, rank)
		}
		if !has {
			continue
		}
		b.WriteString(before)
		if a.Joined() {
			b.WriteByte('(')
		}
		buf, _ = a.WithDrop(0).WithJoin(false).AppendText(buf[:0])
		b.Write(buf)
		before = ","
		switch {
		case a.Joined():
			before = ";"
		case open:
			b.WriteString(overlap)
		}
		open = a.Joined()
	}
	if open {
		return refuse(format, "the last action of rank %d is joined with one behind it, and there is none", rank)
	}
	return nil
}
