package fit

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/layout"
)

// Compose returns the profile of a model whose stages have the given layers. The first stage reads the tokens
// of an entry, and the last stage reads its labels, both until the end of the backward. tokens and labels are
// the sizes of these parts in bytes.
func Compose(stages [][]Layer, tokens, labels int64, v Sizes) (*layout.Profile, error) {
	p := &layout.Profile{Parts: []string{"tokens", "labels"}}
	shape := layout.ShapeProfile{Name: "formulas"}
	for set := uint64(1); set < 4; set++ {
		e := layout.EntryProfile{Parts: set, Out: make([]layout.Ref, len(p.Parts))}
		for part, bytes := range []int64{tokens, labels} {
			if set>>part&1 == 1 {
				e.Out[part] = layout.Ref{Kind: layout.Own, Index: len(e.Buffers)}
				e.Buffers = append(e.Buffers, layout.Buffer{Name: p.Parts[part], Bytes: bytes, Class: memory.Entry})
				e.Events = append(e.Events, layout.RefChange{Op: layout.Alloc, Ref: e.Out[part]})
			}
		}
		shape.Entries = append(shape.Entries, e)
	}
	for i, layers := range stages {
		first, last := i == 0, i == len(stages)-1
		stage, err := composeStage(layers, v, first, last)
		if err != nil {
			return nil, fmt.Errorf("stage %d: %w", i, err)
		}
		facts := schedule.StageInfo{Split: true}
		for _, kind := range []schedule.Kind{schedule.F, schedule.B, schedule.I, schedule.W} {
			if first && kind != schedule.I {
				facts.Reads[kind] |= 1
			}
			if last {
				facts.Reads[kind] |= 2
			}
		}
		shape.Stages, p.StageInfo = append(shape.Stages, *stage), append(p.StageInfo, facts)
	}
	p.Shapes = []layout.ShapeProfile{shape}
	return p, nil
}

// composeStage returns the profile of a stage. The output of a layer is the input of the next one,
// and gradients flow the other way. The input of the first layer and the gradient of the last one's
// output belong to other stages, if there are any.
func composeStage(layers []Layer, v Sizes, first, last bool) (*layout.StageProfile, error) {
	s := &layout.StageProfile{Stage: fmt.Sprintf("%d parts", len(layers))}
	refs := make([][]layout.Ref, len(layers)) // by layer and tensor; zero if it has no bytes
	output, gradient := layout.Ref{Kind: layout.In}, layout.Ref{Kind: layout.GradOut}
	if first {
		output = layout.Ref{}
	}
	if last {
		gradient = layout.Ref{}
	}
	for i, l := range layers {
		refs[i] = make([]layout.Ref, len(l.Tensors))
		var own layout.Ref // the output of this layer
		for k, t := range l.Tensors {
			switch {
			case t.Role == Input:
				refs[i][k] = output
				continue
			case t.Role == Gradient, t.Role == Back && first && i == 0:
				continue
			}
			bytes, err := t.Bytes.bytes(v)
			if err != nil {
				return nil, fmt.Errorf("%s, %s: %w", l.Name, t.Name, err)
			}
			if bytes > 0 {
				refs[i][k] = layout.Ref{Kind: layout.Own, Index: len(s.Buffers)}
				s.Buffers = append(s.Buffers, layout.Buffer{Name: bufferName(l.Name, i, t.Name), Bytes: bytes, Class: t.Class})
			}
			if t.Role == Output {
				own = refs[i][k]
			}
		}
		output = own
	}
	for i, l := range slices.Backward(layers) {
		var own layout.Ref // the gradient of this layer's input
		for k, t := range l.Tensors {
			switch t.Role {
			case Gradient:
				refs[i][k] = gradient
			case Back:
				own = refs[i][k]
			}
		}
		gradient = own
	}
	s.Forward = call(layers, refs, F, false)
	s.Whole, s.Input, s.Weight = call(layers, refs, I, true), call(layers, refs, I, false), call(layers, refs, W, false)
	if !last {
		s.Forward.Out = []layout.Ref{output}
	}
	if !first {
		s.Whole.Out, s.Input.Out = []layout.Ref{gradient}, []layout.Ref{gradient}
	}
	setSlots(s)
	return s, nil
}

// bufferName returns the name of the buffer of a tensor of layer i of a stage.
func bufferName(layer string, i int, tensor string) string {
	return fmt.Sprintf("%s %d, %s", layer, i, tensor)
}

// call returns the events of an action of a stage. If whole is set, I is the whole backward. The events are
// ordered by layer, in reverse for a backward, and within a layer by step, with allocations before releases.
// Those of the step actionEnd come after the events of all layers.
func call(layers []Layer, refs [][]layout.Ref, action Action, whole bool) *layout.Call {
	type change struct {
		step  int
		event layout.RefChange
	}
	call := &layout.Call{}
	var ends []layout.RefChange
	for n := range layers {
		i := n
		if action != F {
			i = len(layers) - 1 - n
		}
		var changes []change
		for k, t := range layers[i].Tensors {
			ref, freed := refs[i][k], t.Freed
			if ref.Kind == layout.None || whole && t.Born.Action == W || whole && t.Only == InSplit || !whole && action != F && t.Only == InWhole {
				continue
			}
			if whole && (freed.Action == W || freed.Step == actionEnd) {
				freed = Moment{I, t.B}
			}
			add := func(step int, op layout.Op) {
				changes = append(changes, change{step, layout.RefChange{Op: op, Ref: ref}})
			}
			lent := t.Role == Input || t.Role == Gradient
			if !lent && t.Born.Action == action {
				add(t.Born.Step, layout.Alloc)
			}
			if ref.Kind != layout.Own { // The runner lends it for one action. A stage that needs it for longer retains it.
				lentIn := F
				if t.Role == Gradient {
					lentIn = I
				}
				if freed.Action == lentIn {
					continue
				}
				if action == lentIn {
					add(0, layout.Retain)
				}
			}
			if (lent || t.Role == Own) && freed.Action == action {
				add(freed.Step, layout.Release)
			}
		}
		slices.SortStableFunc(changes, func(a, b change) int {
			return cmp.Or(cmp.Compare(a.step, b.step), cmp.Compare(a.event.Op, b.event.Op)) // Alloc, Retain, Release
		})
		for _, one := range changes {
			if one.step == actionEnd {
				ends = append(ends, one.event)
			} else {
				call.Events = append(call.Events, one.event)
			}
		}
	}
	call.Events = append(call.Events, ends...)
	return call
}

// setSlots sets the slots of a stage: the buffers that its forward neither releases nor hands on. The input
// comes first, and the others are in descending order of size, because a plan can offload only the first 64
// slots of a stage.
func setSlots(s *layout.StageProfile) {
	held := map[layout.Ref]bool{}
	for _, e := range s.Forward.Events {
		if held[e.Ref] = e.Op != layout.Release; held[e.Ref] && !slices.Contains(s.Forward.Out, e.Ref) {
			s.Slots = append(s.Slots, e.Ref)
		}
	}
	s.Slots = slices.DeleteFunc(s.Slots, func(r layout.Ref) bool { return !held[r] })
	bytes := func(r layout.Ref) int64 {
		if r.Kind != layout.Own {
			return math.MaxInt64
		}
		return s.Buffers[r.Index].Bytes
	}
	slices.SortStableFunc(s.Slots, func(a, b layout.Ref) int { return cmp.Compare(bytes(b), bytes(a)) })
}
