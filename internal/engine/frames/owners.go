package frames

import (
	"fmt"
	"iter"
	"strconv"

	"github.com/weir-ml/weir/internal/engine/effects"
	"github.com/weir-ml/weir/memory"
)

// Owners iterates over the buffers of the step, each with the name of its owner and its purpose: first those
// that the frames hold, and then, if the space can list its buffers, those that are allocated and not held,
// such as a leak. It is meant for the dump between a failure and Abort.
func (c *Frames[T]) Owners() iter.Seq[memory.Info] {
	return func(yield func(memory.Info) bool) {
		if c.held(yield) {
			c.unheld(yield)
		}
	}
}

// lister is a space that lists its live buffers.
type lister interface{ All() iter.Seq[memory.Info] }

// unheld yields the buffers of the step that the frames do not hold.
func (c *Frames[T]) unheld(yield func(memory.Info) bool) {
	if c.lister == nil {
		return
	}
	for info := range c.lister.All() {
		if info.Held > 0 || info.Class.Lasting() || info.Serial < c.mark {
			continue
		}
		info.Name = "not held by the step: in use by the running call, or lost"
		if l := &c.account.blamed; l.known && l.stage >= 0 {
			in := fmt.Sprintf("microbatch %d: stage %d (%s) in %v", c.indexOf(l.microbatch), l.stage, c.newLeak(*l).Name, l.call)
			if info.Serial >= l.from && info.Serial < l.to {
				info.Name = in + ": allocated and lost"
			} else if l.place != effects.None && info.Class == l.class {
				info.Name = in + ": released by the step and still referenced"
			}
		}
		if !yield(info) {
			return
		}
	}
}

// held yields the buffers that the frames hold, and reports whether to continue.
func (c *Frames[T]) held(yield func(memory.Info) bool) bool {
	yieldCells := func(cells []Cell[T], name func(i int) string) bool {
		for i := range cells {
			if h := cells[i].Handle; cells[i].Held() && !yield(memory.Info{Name: name(i), Class: c.Config.Space.Class(h), Bytes: c.Config.Space.Bytes(h), Held: 1}) {
				return false
			}
		}
		return true
	}
	if !yieldCells(c.entries, func(i int) string {
		return fmt.Sprintf("microbatch %d: entry part %q", c.indexOf(c.entryOwners[i/len(c.Config.Parts)]), c.Config.Parts[i%len(c.Config.Parts)])
	}) {
		return false
	}
	for s := range c.stages {
		st := &c.stages[s]
		for i := range st.cells {
			frame, n := i/st.width, i%st.width
			what, slot := fmt.Sprintf("input %d", n), n-st.Inputs-st.Outputs
			if slot >= 0 {
				what = fmt.Sprintf("slot %q", st.Slots[slot])
			} else if n >= st.Inputs {
				what = fmt.Sprintf("gradient of output %d", n-st.Inputs)
			}
			microbatch := "(before its forward)"
			if f := &st.frames[frame]; f.open {
				microbatch = strconv.Itoa(c.indexOf(f.microbatch))
			}
			name := fmt.Sprintf("microbatch %s: stage %d (%s): %s", microbatch, s, st.Name, what)
			if !yieldCells(st.cells[i:i+1], func(int) string { return name }) {
				return false
			}
			if len(st.farCopies) == 0 || slot < 0 {
				continue
			}
			copied := &st.farCopies[frame*len(st.Slots)+slot]
			if copied.exists && !yield(memory.Info{Name: name + " in far memory", Class: copied.class, Bytes: c.Far.Copied(copied.number), Held: 1}) {
				return false
			}
		}
		if !yieldCells(st.outbox.cells, func(i int) string { return st.outbox.owner(i, s, st.Name) }) ||
			!yieldCells(st.gathered, func(i int) string {
				return fmt.Sprintf("stage %d (%s): gathered weight of %q", s, st.Name, st.Params[i].Name)
			}) ||
			!yieldCells(st.grads, func(i int) string {
				return fmt.Sprintf("stage %d (%s): whole gradient of %q", s, st.Name, st.Params[i].Name)
			}) ||
			!yieldCells(st.copies, func(i int) string { return fmt.Sprintf("stage %d (%s): %v", s, st.Name, st.WeightCopies[i]) }) {
			return false
		}
	}
	return true
}

// indexOf returns the index of a microbatch in the batch, or -1 for no microbatch.
func (c *Frames[T]) indexOf(microbatch int) int {
	if microbatch < 0 {
		return microbatch
	}
	return c.Index(c.extent.Plan.BatchIndex(microbatch))
}
