package frames

import (
	"fmt"

	"github.com/weir-ml/weir/internal/engine/invariants"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
)

// witness finds tensors that change although a stage may only read them. It is used under -tags
// invariants: every stage call hashes, before and after, the tensors that the step lends to the stage, and
// the stage's weights.
type witness[T any] struct {
	hasher  memory.Hasher[T] // nil if the space has no hashes
	examine func() error     // finds writes to released memory; nil if the space cannot find them
	cells   map[*Cell[T]]uint64
	weights map[*Use[T]]uint64 // since the step began
	calling bool               // a stage call is running
	fault   error              // found before the running call
}

// newWitness returns the witness of a space.
func newWitness[T any](space memory.Space[T]) (w witness[T]) {
	w.hasher, _ = space.(memory.Hasher[T])
	if able, ok := space.(interface{ Examine() error }); ok {
		w.examine = able.Examine
	}
	return w
}

// begin begins a step: it hashes the weights.
func (w *witness[T]) begin(stages []stage[T]) {
	w.cells, w.weights, w.calling, w.fault = map[*Cell[T]]uint64{}, map[*Use[T]]uint64{}, false, nil
	if w.hasher == nil {
		return
	}
	for s := range stages {
		if stages[s].Declaration == nil {
			continue
		}
		for p := range stages[s].Params {
			use := &stages[s].Params[p]
			if hash, err := w.hasher.Hash(use.Weight); err == nil { // the weight may be unset
				w.weights[use] = hash
			}
		}
	}
}

// compare hashes the tensor of a cell, and returns ErrChanged if an earlier hash is known and
// differs.
func (w *witness[T]) compare(cell *Cell[T], name func() string) error {
	hash, err := w.hasher.Hash(cell.Handle)
	if err != nil { // part of a buffer, for example, has no hash
		return nil
	}
	if was, known := w.cells[cell]; known && was != hash {
		return fmt.Errorf("%w: %s", ErrChanged, name())
	}
	w.cells[cell] = hash
	return nil
}

// CheckWeights returns ErrChanged for a weight of a stage that has changed since the step began. It needs
// -tags invariants.
func (c *Frames[T]) CheckWeights(stage int) error {
	st, w := &c.stages[stage], &c.witness
	if !invariants.Enabled || w.hasher == nil || st.Declaration == nil {
		return nil
	}
	for p := range st.Params {
		use := &st.Params[p]
		if was, known := w.weights[use]; known {
			if hash, err := w.hasher.Hash(use.Weight); err != nil || hash != was {
				return fmt.Errorf("%w: the weight of %q of stage %d (%s)", ErrChanged, use.Name, stage, st.Name)
			}
		}
	}
	return nil
}

// checkLent hashes the tensors that the step lends to the running call and the stage's weights, and returns
// ErrChanged for one that has changed since it was hashed last. For a QUANTIZE it checks only the weights.
// A stage may write to a tensor that it saves until its call ends, and to a tensor that it takes, so saved
// tensors are hashed again after a call.
func (c *Frames[T]) checkLent(after bool) error {
	call, w := &c.call, &c.witness
	if w.hasher == nil {
		return nil
	}
	st := call.stage
	if err := c.CheckWeights(c.account.running.stage); err != nil || call.Kind == schedule.Quantize {
		return err
	}
	check := func(cells []Cell[T], name func(i int) string) error {
		for i := range cells {
			if !cells[i].Held() || cells[i].offloaded() {
				continue
			}
			if err := w.compare(&cells[i], func() string { return name(i) }); err != nil {
				return fmt.Errorf("%w of stage %d (%s)", err, c.account.running.stage, st.Name)
			}
		}
		return nil
	}
	f := call.frame
	if err := check(f.inputs, func(i int) string { return fmt.Sprintf("input %d", i) }); err != nil {
		return err
	}
	if err := check(f.gradients, func(i int) string { return fmt.Sprintf("the gradient of output %d", i) }); err != nil {
		return err
	}
	if err := check(st.copies, func(i int) string { return "the copy of " + st.WeightCopies[i].String() }); err != nil {
		return err
	}
	for i := range f.slots {
		if after { // the stage that takes a saved tensor may write to it; a change shows in the slots of others
			delete(w.cells, &f.slots[i])
		} else if _, known := w.cells[&f.slots[i]]; !known {
			continue
		}
		if err := check(f.slots[i:i+1], func(int) string { return fmt.Sprintf("slot %q", st.Slots[i]) }); err != nil {
			return err
		}
	}
	for part, cell := range c.entryAt(call.BatchIndex) {
		if !cell.Held() || c.entryOwners[call.BatchIndex&c.entryMask] != call.Microbatch {
			continue
		}
		if err := w.compare(c.part(call.BatchIndex, part), func() string { return fmt.Sprintf("part %q", c.Config.Parts[part]) }); err != nil {
			return err
		}
	}
	return nil
}

// beginCall checks what the running call may read. endCall returns the error.
func (c *Frames[T]) beginCall() {
	w := &c.witness
	w.calling, w.fault = true, nil
	if err := c.checkLent(false); err != nil {
		w.fault = fmt.Errorf("%w, before this call: a hook, another action, or a view that was kept wrote to it", err)
	} else if w.examine != nil {
		if err := w.examine(); err != nil {
			w.fault = fmt.Errorf("before this call: %w", err)
		}
	}
}

// endCall returns the error that beginCall found, or one for a tensor or released memory to which the
// running call wrote.
func (c *Frames[T]) endCall() error {
	w := &c.witness
	if !w.calling {
		return nil
	}
	w.calling = false
	if w.fault != nil {
		return w.fault
	}
	if err := c.checkLent(true); err != nil {
		return fmt.Errorf("%w, during this call: compute into a buffer that the call allocates", err)
	}
	if w.examine != nil {
		if err := w.examine(); err != nil {
			return fmt.Errorf("during this call: %w", err)
		}
	}
	return nil
}
