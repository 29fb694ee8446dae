package layout

import (
	"errors"
	"fmt"
	"slices"

	"github.com/weir-ml/weir/internal/formats/diagnostic"
	"github.com/weir-ml/weir/memory"
)

// maxBytes is the largest size of a buffer: 256 TiB.
const maxBytes = 1 << 48

// Validate reports the faults of the profile, at most 16, as joined errors, each of which wraps ErrProfile.
func (t *Profile) Validate() error {
	if t == nil {
		return diagnostic.Errorf(ErrProfile, "the profile has no shape classes")
	}
	var f faults
	if len(t.Parts) > 64 {
		f.add("%d entry parts, at most 64", len(t.Parts))
	}
	if len(t.Shapes) == 0 {
		f.add("there is no shape class")
	}
	for i := range t.Shapes {
		s := &t.Shapes[i]
		if len(s.Stages) == 0 || len(s.Stages) != len(t.Shapes[0].Stages) {
			f.add("shape class %q has %d stages; all have the same number, one or more", s.Name, len(s.Stages))
		}
		for k := range s.Entries {
			e := &s.Entries[k]
			f.entry(t, s, e)
			if s.entry(e.Parts) != e {
				f.add("shape class %q has two entries with parts %q", s.Name, t.names(e.Parts))
			}
		}
		for k := range s.Stages {
			f.stageProfile(t, s, k)
		}
	}
	if n := len(t.Params); n > 0 && len(t.Shapes) > 0 && n != len(t.Shapes[0].Stages) {
		f.add("the profile has parameters of %d stages, expected %d", n, len(t.Shapes[0].Stages))
	}
	for s, params := range t.Params {
		for i, p := range params {
			if p.Bytes < 0 || p.Bytes == 0 && !p.Frozen || p.Bytes > maxBytes {
				f.add("parameter %d (%q) of stage %d has %d bytes", i, p.Name, s, p.Bytes)
			}
		}
	}
	return errors.Join(f...)
}

// faults collects errors.
type faults []error

func (f *faults) add(format string, args ...any) {
	const most = 16
	if len(*f) < most {
		*f = append(*f, diagnostic.Errorf(ErrProfile, format, args...))
	}
}

// buffers checks the sizes and classes of buffers.
func (f *faults) buffers(where string, buffers []Buffer) {
	for i, b := range buffers {
		if b.Bytes < 1 || b.Bytes > maxBytes {
			f.add("%s: buffer %d has %d bytes, want 1 to %d", where, i, b.Bytes, int64(maxBytes))
		}
		if int(b.Class) >= memory.NumClasses {
			f.add("%s: buffer %d is of class %d, but there are only %d", where, i, b.Class, memory.NumClasses)
		}
	}
}

// entry checks the buffers and the parts of an entry, and that every buffer that the entry allocates is
// released or handed over exactly once.
func (f *faults) entry(t *Profile, s *ShapeProfile, e *EntryProfile) {
	where := fmt.Sprintf("shape class %q: entry with parts %q", s.Name, t.names(e.Parts))
	f.buffers(where, e.Buffers)
	if e.Parts>>len(t.Parts) != 0 && len(t.Parts) < 64 {
		f.add("%s: there are %d parts", where, len(t.Parts))
	}
	if len(e.Out) > len(t.Parts) {
		f.add("%s: it hands over %d parts of %d", where, len(e.Out), len(t.Parts))
	}
	for part := range t.Parts {
		wanted, given := e.Parts>>part&1 == 1, part < len(e.Out) && e.Out[part].Kind == Own
		if wanted != given || part < len(e.Out) && e.Out[part].Kind != Own && e.Out[part].Kind != None {
			f.add("%s: part %d must be a buffer of the entry if it is wanted, and none otherwise", where, part)
		}
	}
	b := newBalance(e.Buffers)
	b.events(e.Events)
	b.out(e.Out)
	f.balance(where, b, e.Buffers)
}

// stageProfile checks the buffers, slots and calls of a stage, and that, over the calls of a microbatch,
// every buffer that the stage allocates or retains is released or handed over.
func (f *faults) stageProfile(t *Profile, s *ShapeProfile, stage int) {
	tmpl := &s.Stages[stage]
	where := fmt.Sprintf("shape class %q: stage %d (%s)", s.Name, stage, tmpl.Stage)
	f.buffers(where, tmpl.Buffers)
	for slot, ref := range tmpl.Slots {
		if ref.Kind == Own && (ref.Index < 0 || ref.Index >= len(tmpl.Buffers)) {
			f.add("%s: slot %d holds buffer %d of %d", where, slot, ref.Index, len(tmpl.Buffers))
		}
	}
	for _, c := range tmpl.calls() {
		if c == nil {
			continue
		}
		if c.Taken < 0 || c.Taken > len(c.Events) {
			f.add("%s: a call of %d events has %d ends of slots", where, len(c.Events), c.Taken)
			return
		}
		if slices.ContainsFunc(c.Events[len(c.Events)-c.Taken:], func(e RefChange) bool { return e.Op != Release }) {
			f.add("%s: the ends of slots of a call are not all releases", where)
		}
		quantizes := c == tmpl.Quantize || c == tmpl.QuantizeEval
		if c.Forward < 0 || c.Forward > len(c.Out) || c.Forward > 0 && !quantizes || quantizes && c.Taken > 0 {
			f.add("%s: a call that hands over %d buffers has %d copies of weights for the forward", where, len(c.Out), c.Forward)
			return
		}
	}
	for _, sequence := range []struct {
		name  string
		calls []*Call
	}{
		{"F and B", []*Call{tmpl.Forward, tmpl.Whole}},
		{"F, I and W", []*Call{tmpl.Forward, tmpl.Input, tmpl.Weight}},
		{"evaluation", []*Call{tmpl.Eval}},
		{"UNSHARD", []*Call{tmpl.Gather}},
		{"ZERO_GRAD", []*Call{tmpl.ZeroGrad}},
		{"QUANTIZE", []*Call{tmpl.Quantize}},
		{"QUANTIZE in evaluation", []*Call{tmpl.QuantizeEval}},
	} {
		calls := slices.DeleteFunc(sequence.calls, func(c *Call) bool { return c == nil })
		if len(calls) == 0 || len(calls) == 1 && calls[0] == tmpl.Forward && (tmpl.Whole != nil || tmpl.Input != nil) {
			continue
		}
		b := newBalance(tmpl.Buffers)
		for _, c := range calls {
			b.events(c.Events)
		}
		for _, c := range calls {
			b.out(c.Out)
		}
		f.balance(where+": "+sequence.name, b, tmpl.Buffers)
	}
}

// balance counts the references that remain after events.
type balance struct {
	refs  map[Ref]int
	fault string // of an event; empty if there is none
}

func newBalance(buffers []Buffer) *balance {
	b := &balance{refs: map[Ref]int{}}
	for i, buffer := range buffers {
		if buffer.Class == memory.Resident {
			b.refs[Ref{Own, i}] = 1 << 30 // held by others for the whole step
		}
	}
	return b
}

func (b *balance) events(events []RefChange) {
	for i, e := range events {
		switch {
		case e.Op > Release || e.Ref.Kind == None || e.Ref.Kind > PartRead || e.Ref.Index < 0 || e.Ref.Index > 1<<20:
			b.fault = fmt.Sprintf("event %d is invalid", i)
		case e.Op == Alloc && (e.Ref.Kind != Own || b.refs[e.Ref] != 0):
			b.fault = fmt.Sprintf("event %d allocates %v, which the call does not own or has already allocated", i, e.Ref)
		case e.Op == Release:
			if b.refs[e.Ref]--; e.Ref.Kind == Own && b.refs[e.Ref] < 0 {
				b.fault = fmt.Sprintf("event %d releases %v once more than it is retained", i, e.Ref)
			}
		case e.Op == Retain && e.Ref.Kind == Own && b.refs[e.Ref] == 0:
			b.fault = fmt.Sprintf("event %d retains %v, which is not allocated", i, e.Ref)
		default:
			b.refs[e.Ref]++
		}
	}
}

// out subtracts the references that a call hands over.
func (b *balance) out(refs []Ref) {
	for _, ref := range refs {
		if ref.Kind != None {
			b.refs[ref]--
		}
	}
}

// balance adds the fault of an event, if there is one, and otherwise the references that remain, are
// missing, or name no buffer.
func (f *faults) balance(where string, b *balance, buffers []Buffer) {
	if b.fault != "" {
		f.add("%s: %s", where, b.fault)
		return
	}
	for ref, left := range b.refs {
		switch {
		case ref.Kind == Own && ref.Index >= len(buffers):
			f.add("%s: there is no %v", where, ref)
		case ref.Kind == Own && buffers[ref.Index].Class == memory.Resident:
		case left > 0:
			name := ref.String()
			if ref.Kind == Own && buffers[ref.Index].Name != "" {
				name = fmt.Sprintf("%s (%s)", name, buffers[ref.Index].Name)
			}
			f.add("%s: %s is never released", where, name)
		case left < 0:
			f.add("%s: %v is released or handed over once more than it is retained", where, ref)
		}
	}
}
