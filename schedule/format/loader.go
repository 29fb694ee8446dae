package format

import (
	"slices"
	"strings"

	"github.com/weir-ml/weir/schedule"
)

// Refused returns the places in a CSV file that Read accepts, but that PyTorch's loader (_load_csv of PyTorch 2.15)
// refuses or reads differently: a table, a byte order mark, blank lines after those of the ranks, the letters of 2024,
// and reductions in a compute-only file. Write writes the plan without any of them.
func (f *File) Refused() (faults []*Error) {
	if f.Format != Compute && !f.Format.communicates() {
		return nil
	}
	add := func(offset int, text string) {
		line, column := f.place(offset)
		faults = append(faults, &Error{Name: f.Name, Line: line, Column: column, Text: text})
	}
	if isTable(f.text) {
		add(0, "found a table, expected the actions of rank 0: PyTorch prints tables, but does not load them")
		return faults
	}
	if f.mark != "" {
		add(0, "found a byte order mark, expected an action: PyTorch refuses the mark as a part of its first action")
	}
	if f.OldLetters {
		add(0, "found the letters of 2024, expected today's: PyTorch reads B as the full backward, and BW as an action without a microbatch")
	}
	if lines := strings.Count(strings.TrimSuffix(f.text, "\n"), "\n") + 1; lines > len(f.starts) {
		at := 0
		for range f.starts {
			at += strings.IndexByte(f.text[at:], '\n') + 1
		}
		add(at, "found a blank line, expected the end of the file: PyTorch counts it as a rank without actions")
	}
	for rank, program := range f.Plan.Programs {
		written := slices.Collect(schedule.StaticActions(program))
		i := slices.IndexFunc(written, func(a schedule.Action) bool { return !a.Kind().Compute() })
		if f.Format == Compute && i >= 0 {
			add(int(f.offsets[rank][i]), "found a reduction, expected F, B, I or W: PyTorch lists reductions among computations, but does not load them")
			break
		}
	}
	return faults
}
