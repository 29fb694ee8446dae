package layout

import (
	"fmt"
	"slices"
)

// envelope returns a profile of one shape class in which every buffer has its largest size
// over all classes.
func envelope(t *Profile) (*Profile, error) {
	if len(t.Shapes) == 1 {
		return t, nil
	}
	one := ShapeProfile{Name: "envelope", Entries: slices.Clone(t.Shapes[0].Entries), Stages: slices.Clone(t.Shapes[0].Stages)}
	for i := range t.Shapes[1:] {
		shape := &t.Shapes[1+i]
		differ := func(what string, args ...any) error {
			return fmt.Errorf("%w: shape classes %q and %q differ in more than sizes in %s, so they have no envelope: set Config.Shapes",
				ErrProfile, t.Shapes[0].Name, shape.Name, fmt.Sprintf(what, args...))
		}
		for i := range one.Entries {
			e, other := &one.Entries[i], shape.entry(one.Entries[i].Parts)
			if other == nil || !slices.Equal(e.Events, other.Events) || !slices.Equal(e.Out, other.Out) || !widen(&e.Buffers, other.Buffers) {
				return nil, differ("the entry with parts %q", t.names(e.Parts))
			}
		}
		for s := range one.Stages {
			a, b := &one.Stages[s], &shape.Stages[s]
			if !sameCalls(a, b) || !slices.Equal(a.Slots, b.Slots) || !widen(&a.Buffers, b.Buffers) {
				return nil, differ("stage %d (%s)", s, a.Stage)
			}
		}
	}
	return &Profile{Parts: t.Parts, Params: t.Params, Shapes: []ShapeProfile{one}}, nil
}

// widen raises the sizes of buffers to those of others, and reports whether both lists have
// the same classes.
func widen(buffers *[]Buffer, others []Buffer) bool {
	if len(*buffers) != len(others) {
		return false
	}
	wide := slices.Clone(*buffers)
	for i, b := range others {
		if wide[i].Class != b.Class {
			return false
		}
		wide[i].AtMost = wide[i].AtMost || b.AtMost || wide[i].Bytes != b.Bytes
		wide[i].Bytes = max(wide[i].Bytes, b.Bytes)
	}
	*buffers = wide
	return true
}

// calls returns the calls of a profile, nil for those that are missing.
func (t *StageProfile) calls() [9]*Call {
	return [...]*Call{t.Forward, t.Whole, t.Input, t.Weight, t.Eval, t.Gather, t.ZeroGrad, t.Quantize, t.QuantizeEval}
}

// sameCalls reports whether two stage profiles differ in sizes only.
func sameCalls(a, b *StageProfile) bool {
	others := b.calls()
	for i, call := range a.calls() {
		other := others[i]
		if (call == nil) != (other == nil) {
			return false
		}
		if call != nil && (call.Taken != other.Taken || call.Forward != other.Forward || !slices.Equal(call.Events, other.Events) || !slices.Equal(call.Out, other.Out)) {
			return false
		}
	}
	return true
}
