package fit

import (
	"slices"

	"github.com/weir-ml/weir/memory"
)

// Layer is what one part of a model allocates, keeps and releases for a microbatch.
type Layer struct {
	Name    string
	Tensors []Tensor
}

// Tensor is a tensor of a layer.
type Tensor struct {
	Name  string
	Bytes Formula
	Class memory.Class
	Role  Role
	// Born and Freed are when it is allocated and released where the backward is split. A
	// whole backward takes the moments of I; B is its step for what W frees, and what W also
	// allocates it leaves out.
	Born, Freed Moment
	B           int
	Group       string // that may be computed again by itself, "" for none
}

// Moment is a step of an action. Within a step allocations come before releases.
type Moment struct {
	Action Action
	Step   int
}

// Action is one of those of a stage.
type Action uint8

// The actions of a stage and a microbatch.
const (
	F Action = iota
	I
	W
)

// Role says whose a tensor is.
type Role uint8

// The roles of tensors.
const (
	Own      Role = iota
	Input         // what the layer before has put out: Freed is when it is done with it
	Output        // what F hands to the layer behind; it has no Freed
	Gradient      // of the output, which the layer behind has made: Freed as of Input
	Back          // the gradient of the input, which I hands to the layer before
)

// kept are tensors that F allocates and that I or W frees at a step.
func kept(name string, bytes Formula, born int, freed Moment, step int) Tensor {
	return Tensor{Name: name, Bytes: bytes, Class: memory.Saved, Born: Moment{F, born}, Freed: freed, B: step}
}

// group puts a tensor into a group that may be computed again.
func (t Tensor) group(name string) Tensor { t.Group = name; return t }

// scratch are tensors that live from one step of an action to another one.
func scratch(name string, bytes Formula, action Action, born, freed int) Tensor {
	return Tensor{Name: name, Bytes: bytes, Class: memory.Workspace, Born: Moment{action, born}, Freed: Moment{action, freed}}
}

// carried are gradients that I leaves for W; a whole backward frees them at a step.
func carried(name string, bytes Formula, born, step int) Tensor {
	return Tensor{Name: name, Bytes: bytes, Class: memory.Carry, Born: Moment{I, born}, Freed: Moment{W, 1}, B: step}
}

// life returns when a tensor is allocated and released in a backward of a kind, and whether
// it is there at all.
func (t *Tensor) life(split bool) (born, freed Moment, there bool) {
	born, freed = t.Born, t.Freed
	if !split && born.Action == W {
		return born, freed, false
	}
	if !split && freed.Action == W {
		freed = Moment{I, t.B}
	}
	return born, freed, true
}

// again returns the tensors of a layer of which some are computed again: all, or those of
// groups. Each of these dies with the forward, and comes back at the beginning of the backward.
func (l Layer) again(r Recompute) Layer {
	if !r.All && len(r.Groups) == 0 {
		return l
	}
	const last, first = 1 << 10, -1 // before and behind every step of a layer
	var list []Tensor
	for _, t := range l.Tensors {
		held := t.Role == Own && t.Born.Action == F && t.Freed.Action != F
		if !held || !r.All && !slices.Contains(r.Groups, t.Group) {
			list = append(list, t)
			continue
		}
		forward, backward := t, t
		forward.Class, forward.Freed = memory.Workspace, Moment{F, last}
		if !r.All {
			forward.Freed.Step = t.Born.Step + 1
		}
		backward.Name, backward.Born = t.Name+", again", Moment{I, first}
		list = append(list, forward, backward)
	}
	return Layer{l.Name, list}
}
