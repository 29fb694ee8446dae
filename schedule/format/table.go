package format

import (
	"slices"
	"strconv"
	"strings"

	"github.com/weir-ml/weir/schedule"
)

// PyTorch also prints a schedule as a table (_format_pipeline_order, the same in PyTorch 2.9 to 2.15), for
// example when its simulator stops. Each rank has a column, and each step a row:
//
//	       Rank 0 Rank 1
//	Step 0: 0F0
//	Step 1: 0F1    1F0    <-- ERROR HERE

// isTable reports whether a text is such a table.
func isTable(text string) bool {
	head, rows, _ := strings.Cut(text, "\n")
	return strings.HasPrefix(strings.TrimSpace(head), "Rank 0") && strings.HasPrefix(rows, "Step ")
}

// table reads the columns of such a table.
func (r *csvReader) table() (starts []line, programs []program, err error) {
	head, _, _ := strings.Cut(r.f.text, "\n")
	for rank, at := 0, 0; ; rank++ {
		label := "Rank " + strconv.Itoa(rank)
		next := strings.Index(head[at:], label)
		if next < 0 {
			break
		}
		if len(starts) == schedule.MaxStages {
			return nil, nil, r.f.fault(at+next, "found a column for rank %d, expected at most %d ranks", rank, schedule.MaxStages)
		}
		starts = append(starts, line{start: at + next})
		at += next + len(label)
	}
	programs = make([]program, len(starts))
	offset := len(head) + 1
	for row := range strings.Lines(r.f.text[min(offset, len(r.f.text)):]) {
		cells, _, _ := strings.Cut(strings.TrimRight(row, "\r\n"), " <-- ERROR HERE")
		if cells != "" && !strings.HasPrefix(cells, "Step ") {
			return nil, nil, r.f.fault(offset, "found %s, expected a row of the table such as Step 01: 0F0", r.f.found(offset))
		}
		for rank, column := range starts {
			from, to := min(column.start, len(cells)), len(cells)
			if rank+1 < len(starts) {
				to = min(starts[rank+1].start, to)
			}
			cell := strings.TrimRight(cells[from:to], " ")
			if cell == "" || cell == "None" {
				continue
			}
			if err := r.cell(&programs[rank], cell, offset+from); err != nil {
				return nil, nil, err
			}
		}
		offset += len(row)
	}
	return starts, programs, nil
}

// released adds the RESHARDs that versions of PyTorch without REDUCE_GRAD leave out: the last backward of a stage
// releases its weights (backward_maybe_with_fsdp in stage.py of PyTorch 2.9.1). It reports whether it has added any.
func released(programs []program) (added bool) {
	for _, p := range programs {
		if slices.ContainsFunc(p.actions, func(a schedule.Action) bool { return a.Kind() == schedule.ReduceGrad }) {
			return false
		}
	}
	for i := range programs {
		p := &programs[i]
		gathered, last := map[int]bool{}, map[int]int{} // by stage: whether its weights are gathered, and its last backward since
		for at, a := range p.actions {
			switch a.Kind() {
			case schedule.Unshard, schedule.Reshard:
				gathered[a.Stage()] = a.Kind() == schedule.Unshard
				delete(last, a.Stage())
			case schedule.B, schedule.I, schedule.W:
				last[a.Stage()] = at
			}
		}
		var with program
		for at, a := range p.actions {
			with.actions, with.offsets = append(with.actions, a), append(with.offsets, p.offsets[at])
			if n, ok := last[a.Stage()]; ok && n == at && gathered[a.Stage()] {
				with.actions, with.offsets = append(with.actions, schedule.NewAction(schedule.Reshard, a.Stage(), 0)), append(with.offsets, p.offsets[at])
				added = true
			}
		}
		*p = with
	}
	return added
}
