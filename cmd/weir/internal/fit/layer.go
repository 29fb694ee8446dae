package fit

import (
	"slices"

	"github.com/weir-ml/weir/memory"
)

// Layer lists the tensors that one module of a model allocates or uses for a microbatch.
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
	// Born and Freed are the moments of allocation and release with a split backward. A whole
	// backward uses the moments of I; it frees the tensors of W at step B, and leaves out the
	// tensors that W allocates.
	Born, Freed Moment
	B           int
	Group       string // recompute group of the tensor; "" if only full recompute covers it
	Only        Only
}

// Only restricts a tensor to plans with split backwards or to plans with whole backwards.
type Only uint8

// The backwards. The zero value stands for both.
const (
	InSplit Only = 1 + iota // I and W
	InWhole                 // B
)

// Moment is a step of an action. Within a step, allocations come before releases.
type Moment struct {
	Action Action
	Step   int
}

// actionEnd is a step after the steps of all layers.
const actionEnd = 1 << 20

// Action is a computation of a stage for a microbatch.
type Action uint8

// The actions: the forward, and the input and weight halves of the backward.
const (
	F Action = iota
	I
	W
)

// Role says which layer allocates and frees a tensor.
type Role uint8

// The roles of tensors.
const (
	Own      Role = iota
	Input         // output of the previous layer; Freed is the moment of this layer's last use
	Output        // handed to the next layer by F; Freed is not used
	Gradient      // gradient of the output, from the next layer; Freed as for Input
	Back          // gradient of the input, handed to the previous layer by I
)

// kept returns a tensor that F allocates and I or W frees. A whole backward frees it at the given step.
func kept(name string, bytes Formula, born int, freed Moment, step int) Tensor {
	return Tensor{Name: name, Bytes: bytes, Class: memory.Saved, Born: Moment{F, born}, Freed: freed, B: step}
}

// group returns the tensor as a member of a recompute group.
func (t Tensor) group(name string) Tensor { t.Group = name; return t }

// scratch returns a tensor that lives between two steps of one action.
func scratch(name string, bytes Formula, action Action, born, freed int) Tensor {
	return Tensor{Name: name, Bytes: bytes, Class: memory.Workspace, Born: Moment{action, born}, Freed: Moment{action, freed}}
}

// carried returns a gradient that I leaves for W. A whole backward frees it at the given step.
func carried(name string, bytes Formula, born, step int) Tensor {
	return Tensor{Name: name, Bytes: bytes, Class: memory.Carry, Born: Moment{I, born}, Freed: Moment{W, 1}, B: step}
}

// again returns the layer with recompute: the forward frees the recomputed tensors, and the backward
// allocates them again when it begins.
func (l Layer) again(r Recompute) Layer {
	if !r.All && len(r.Groups) == 0 {
		return l
	}
	const last, first = 1 << 10, -1 // after and before every step of a layer
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
