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

// entryParts are the parts of a batch entry: tokens for the embedding, labels for the head.
var entryParts = []string{"tokens", "labels"}

// Compose returns the profile of a model whose stages have the given layers. The first stage reads
// the tokens of an entry and the last stage its labels, both until the end of the backward. tokens
// and labels are their sizes in bytes.
func Compose(stages [][]Layer, tokens, labels int64, v Sizes) (*layout.Profile, error) {
	shape := layout.ShapeProfile{Name: "formulas"}
	for set := uint64(1); set < 4; set++ {
		shape.Entries = append(shape.Entries, entryOf(set, tokens, labels))
	}
	p := &layout.Profile{Parts: entryParts}
	for i, layers := range stages {
		c := composer{sizes: v, first: i == 0, last: i == len(stages)-1}
		one, err := c.stage(layers)
		if err != nil {
			return nil, fmt.Errorf("stage %d: %w", i, err)
		}
		shape.Stages = append(shape.Stages, one)
		facts := schedule.Facts{Split: true}
		if i == 0 {
			facts.Reads[schedule.F], facts.Reads[schedule.B], facts.Reads[schedule.W] = 1, 1, 1
		}
		if i == len(stages)-1 {
			for _, kind := range []schedule.Kind{schedule.F, schedule.B, schedule.I, schedule.W} {
				facts.Reads[kind] |= 2
			}
		}
		p.Facts = append(p.Facts, facts)
	}
	p.Shapes = []layout.ShapeProfile{shape}
	return p, nil
}

// entryOf returns the profile of an entry with a set of parts.
func entryOf(set uint64, bytes ...int64) layout.Entry {
	e := layout.Entry{Parts: set, Out: make([]layout.Ref, len(entryParts))}
	for part := range entryParts {
		if set>>part&1 == 1 {
			ref := layout.Ref{Kind: layout.Own, Index: len(e.Buffers)}
			e.Buffers = append(e.Buffers, layout.Buffer{Name: entryParts[part], Bytes: bytes[part], Class: memory.Entry})
			e.Events = append(e.Events, layout.RefChange{Op: layout.Alloc, Ref: ref})
			e.Out[part] = ref
		}
	}
	return e
}

// composer makes the profile of a stage from its layers.
type composer struct {
	sizes       Sizes
	first, last bool // whether the stage is the first or last one of the model
	stageOf     layout.StageProfile
	own         [][]layout.Ref // by layer and tensor
	layers      []Layer
}

// stage returns the profile of a stage. The output of a layer is the input of the next one, and
// gradients flow the other way. The input of the first layer and the output of the last one are
// the stage's own.
func (c *composer) stage(layers []Layer) (layout.StageProfile, error) {
	c.layers = layers
	for i, l := range layers {
		c.own = append(c.own, make([]layout.Ref, len(l.Tensors)))
		for k, t := range l.Tensors {
			if t.Role == Input || t.Role == Gradient || t.Role == Back && c.first && i == 0 {
				continue
			}
			bytes, err := t.Bytes.bytes(c.sizes)
			if err != nil {
				return layout.StageProfile{}, fmt.Errorf("%s, %s: %w", l.Name, t.Name, err)
			}
			if bytes > 0 {
				c.own[i][k] = layout.Ref{Kind: layout.Own, Index: len(c.stageOf.Buffers)}
				c.stageOf.Buffers = append(c.stageOf.Buffers, layout.Buffer{Name: fmt.Sprintf("%s %d, %s", l.Name, i, t.Name), Bytes: bytes, Class: t.Class})
			}
		}
	}
	for i, l := range layers { // lent tensors
		for k, t := range l.Tensors {
			switch {
			case t.Role == Input && i > 0:
				c.own[i][k] = c.of(i-1, Output)
			case t.Role == Input && !c.first:
				c.own[i][k] = layout.Ref{Kind: layout.In}
			case t.Role == Gradient && i < len(layers)-1:
				c.own[i][k] = c.of(i+1, Back)
			case t.Role == Gradient && !c.last:
				c.own[i][k] = layout.Ref{Kind: layout.GradOut}
			}
		}
	}
	s := &c.stageOf
	s.Stage = fmt.Sprintf("%d parts", len(layers))
	s.Forward, s.Eval = c.call(F, true, nil), nil
	s.Whole, s.Input, s.Weight = c.call(I, false, nil), c.call(I, true, nil), c.call(W, true, nil)
	if !c.last {
		s.Forward.Out = []layout.Ref{c.of(len(layers)-1, Output)}
	}
	setSlots(s)
	if !c.first {
		s.Whole.Out, s.Input.Out = []layout.Ref{c.of(0, Back)}, []layout.Ref{c.of(0, Back)}
	}
	return *s, nil
}

// setSlots sets the slots of a stage: the buffers that its forward neither releases nor hands on,
// its input first, then by size, since a plan can offload only the first 64 slots of a stage.
func setSlots(s *layout.StageProfile) {
	held := map[layout.Ref]bool{}
	for _, e := range s.Forward.Events {
		if held[e.Ref] = e.Op != layout.Release; e.Op != layout.Release && !slices.Contains(s.Forward.Out, e.Ref) {
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

// of returns the reference to a layer's tensor with a role; zero if the layer has none.
func (c *composer) of(layer int, role Role) layout.Ref {
	k := slices.IndexFunc(c.layers[layer].Tensors, func(t Tensor) bool { return t.Role == role })
	if k < 0 {
		return layout.Ref{}
	}
	return c.own[layer][k]
}

// change is an event at a step of a layer's action.
type change struct {
	step  int
	event layout.RefChange
}

// call returns the events of an action: layer by layer, in reverse order for a backward, and
// within a layer by step, allocations before releases.
func (c *composer) call(action Action, split bool, out []layout.Ref) *layout.Call {
	call := &layout.Call{Out: out}
	for n := range c.layers {
		i := n
		if action != F {
			i = len(c.layers) - 1 - n
		}
		var changes []change
		for k, t := range c.layers[i].Tensors {
			changes = c.changes(changes, &t, c.own[i][k], action, split)
		}
		slices.SortStableFunc(changes, func(a, b change) int {
			if a.step != b.step {
				return a.step - b.step
			}
			return int(a.event.Op) - int(b.event.Op) // Alloc, Retain, Release
		})
		for _, one := range changes {
			call.Events = append(call.Events, one.event)
		}
	}
	return call
}

// changes appends the events of a tensor in an action.
func (c *composer) changes(list []change, t *Tensor, ref layout.Ref, action Action, split bool) []change {
	born, freed, there := t.life(split)
	if ref.Kind == layout.None || !there {
		return list
	}
	add := func(step int, op layout.Op) { list = append(list, change{step, layout.RefChange{Op: op, Ref: ref}}) }
	lentIn := F // the action in which a tensor that is not the layer's is lent to it
	if t.Role == Gradient {
		lentIn = I
	}
	handedOn := t.Role == Output || t.Role == Back
	if (handedOn || t.Role == Own) && born.Action == action {
		add(born.Step, layout.Alloc)
	}
	if ref.Kind != layout.Own { // The runner lends it for one action; a stage that needs it for longer retains it.
		if freed.Action == lentIn {
			return list
		}
		if action == lentIn {
			add(0, layout.Retain)
		}
	}
	if !handedOn && freed.Action == action {
		add(freed.Step, layout.Release)
	}
	return list
}
