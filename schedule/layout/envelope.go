package layout

import (
	"fmt"
	"slices"

	"github.com/weir-ml/weir/internal/formats/diagnostic"
)

// envelope returns a profile with one shape class, in which every buffer has its largest size over all
// classes. If there is only one class, it is that of the longest microbatch, so its sizes are upper bounds.
func envelope(t *Profile) (*Profile, error) {
	wide := ShapeProfile{Name: "envelope", Entries: slices.Clone(t.Shapes[0].Entries), Stages: slices.Clone(t.Shapes[0].Stages)}
	if len(t.Shapes) == 1 {
		wide.Name = t.Shapes[0].Name
		for i := range wide.Entries {
			wide.Entries[i].Buffers = bounds(wide.Entries[i].Buffers)
		}
		for s := range wide.Stages {
			wide.Stages[s].Buffers = bounds(wide.Stages[s].Buffers)
		}
	}
	for i := range t.Shapes[1:] {
		shape := &t.Shapes[1+i]
		differ := func(what string, args ...any) error {
			return diagnostic.Errorf(ErrProfile, "shape classes %q and %q differ in more than sizes in %s, so they have no envelope: set Config.Shapes",
				t.Shapes[0].Name, shape.Name, fmt.Sprintf(what, args...))
		}
		for i := range wide.Entries {
			e, other := &wide.Entries[i], shape.entry(wide.Entries[i].Parts)
			if other == nil || !slices.Equal(e.Events, other.Events) || !slices.Equal(e.Out, other.Out) || !widen(&e.Buffers, other.Buffers) {
				return nil, differ("the entry with parts %q", t.names(e.Parts))
			}
		}
		for s := range wide.Stages {
			a, b := &wide.Stages[s], &shape.Stages[s]
			if !sameCalls(a, b) || !slices.Equal(a.Slots, b.Slots) || !widen(&a.Buffers, b.Buffers) {
				return nil, differ("stage %d (%s)", s, a.Stage)
			}
		}
	}
	return &Profile{Parts: t.Parts, Params: t.Params, Shapes: []ShapeProfile{wide}}, nil
}

// bounds returns buffers whose sizes are upper bounds.
func bounds(buffers []Buffer) []Buffer {
	bounds := slices.Clone(buffers)
	for i := range bounds {
		bounds[i].AtMost = true
	}
	return bounds
}

// widen raises the sizes of buffers to those of others if these are larger. It reports false, and changes nothing,
// unless both lists have the same length and classes.
func widen(buffers *[]Buffer, others []Buffer) bool {
	if len(*buffers) != len(others) {
		return false
	}
	largest := slices.Clone(*buffers)
	for i, b := range others {
		if largest[i].Class != b.Class {
			return false
		}
		largest[i].AtMost = largest[i].AtMost || b.AtMost || largest[i].Bytes != b.Bytes
		largest[i].Bytes = max(largest[i].Bytes, b.Bytes)
	}
	*buffers = largest
	return true
}

// calls returns all calls of a profile; a missing call is nil.
func (t *StageProfile) calls() [9]*Call {
	return [...]*Call{t.Forward, t.Whole, t.Input, t.Weight, t.Eval, t.Gather, t.ZeroGrad, t.Quantize, t.QuantizeEval}
}

// sameCalls reports whether two stage profiles differ only in sizes.
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
