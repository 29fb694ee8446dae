package format

import (
	"bufio"
	"fmt"
	"io"

	"github.com/weir-ml/weir/internal/formats/diagnostic"
	"github.com/weir-ml/weir/schedule"
)

// Write writes a plan. An error comes from w, or wraps ErrRefused, or for Text schedule.ErrText, if the form cannot
// express the plan; in that case nothing is written. Compute and Order omit all actions except computations, Comms26
// omits waits, and Comms adds the waits that a plan for Weir lacks, and all waits to a plan for PyTorch that has none.
// Comms and Comms26 also omit ZERO_GRAD. All four omit drops.
func Write(w io.Writer, plan *schedule.Plan, format Format) error {
	switch format {
	case Text:
		return plan.WriteText(w)
	case JSON:
		return WriteJSON(w, plan, nil)
	case Compute, Comms, Comms26, Order:
		if err := refusePlan(plan, format); err != nil {
			return err
		}
		if err := writeLines(io.Discard, plan, format); err != nil {
			return err
		}
		return writeLines(w, plan, format)
	}
	return diagnostic.Errorf(ErrRefused, "a plan cannot be written as %v", format)
}

// writeLines writes a line for each rank.
func writeLines(w io.Writer, plan *schedule.Plan, format Format) error {
	b := bufio.NewWriter(w)
	for rank := range plan.Programs {
		var err error
		if format == Order {
			err = writeSigned(b, plan, rank)
		} else {
			err = writeCells(b, plan, rank, format)
		}
		if err != nil {
			return err
		}
		b.WriteByte('\n')
	}
	if err := b.Flush(); err != nil {
		return fmt.Errorf("format: %w", err)
	}
	return nil
}

// refuse returns the error for a plan that a form cannot express.
func refuse(format Format, text string, args ...any) error {
	return diagnostic.Errorf(ErrRefused, "%v: %s", format, fmt.Sprintf(text, args...))
}

// refusePlan returns an error if the form cannot express the plan, whatever the order of its actions.
func refusePlan(plan *schedule.Plan, format Format) error {
	place := plan.Placement
	if place.Ranks != len(plan.Programs) {
		return refuse(format, "the plan has %d ranks and %d programs", place.Ranks, len(plan.Programs))
	}
	var actions int64
	for rank := range plan.Programs {
		actions += plan.Actions(rank)
	}
	if actions > schedule.MaxWritten {
		return refuse(format, "the plan has %d actions, and a file with each of them written out may have %d: write text or plan, which store a repeated segment once", actions, schedule.MaxWritten)
	}
	if place.Copies > 1 && place.Stages()%place.Copies != 0 {
		return refuse(format, "%d copies cannot have equal shares of %d stages", place.Copies, place.Stages())
	}
	if format == Order {
		return refuseOrder(plan)
	}
	return refuseCSV(plan, format)
}

// includes reports whether a form includes actions of a kind and, if it does not, whether a plan that
// contains them is refused instead of being written without them. Compute and Order omit all actions
// except computations. Comms omits ZERO_GRAD, and Comms26 also the waits for sends and reductions.
func (f Format) includes(kind schedule.Kind) (included, refused bool) {
	switch {
	case kind.Compute():
		return true, false
	case kind == schedule.WaitF || kind == schedule.WaitB || kind == schedule.WaitReduce:
		return f == Comms, false
	case kind == schedule.ZeroGrad:
		return false, false
	case kind >= schedule.SendF && kind <= schedule.RecvB || kind >= schedule.Unshard && kind <= schedule.ReduceGrad || kind == schedule.Quantize:
		return f.communicates(), false
	}
	return false, true
}

// communicates reports whether a form is PyTorch's CSV with communication.
func (f Format) communicates() bool { return f == Comms || f == Comms26 }
