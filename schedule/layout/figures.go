package layout

import (
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
)

// Figures holds the bytes that a stage keeps for one microbatch. It is for stages that allocate outside
// the library or have not been recorded. The saved bytes include the input if the stage keeps it.
type Figures struct {
	Stage    string
	Output   int64 // output of F
	Gradient int64 // gradient that the backward returns
	Input    int64 // saved at F, freed by I
	Weight   int64 // saved at F, freed by W
	Carry    int64 // saved by I, freed by W
	Forward  int64 // workspace of F
	Backward int64 // workspace of B, I and W

	ForwardWeights  int64 // copies of weights that QUANTIZE makes for the forward, once per step
	BackwardWeights int64 // copies of weights that QUANTIZE makes for the backward, once per step

	Gathered  int64 // weights that UNSHARD gathers
	Gradients int64 // whole gradients, from ZERO_GRAD to WAIT_REDUCE
}

// FromFigures returns a profile for a plan from the figures of its stages: stage s has
// figures[s%len(figures)], and there must be at least one. A stage without a backward keeps nothing, and a
// frozen stage releases everything with I.
func FromFigures(plan *schedule.Plan, figures []Figures) *Profile {
	t := &Profile{Shapes: []ShapeProfile{{Name: "figures"}}}
	for s := range plan.Placement.Stages() {
		f := &figures[s%len(figures)]
		frozen := s < len(plan.Frozen) && plan.Frozen[s]
		t.Shapes[0].Stages = append(t.Shapes[0].Stages, f.stageProfile(plan, s, frozen))
		t.StageInfo = append(t.StageInfo, schedule.StageInfo{Split: true, Frozen: frozen, Quantizes: f.ForwardWeights+f.BackwardWeights > 0})
	}
	return t
}

// stageProfile returns the profile of a stage.
func (f *Figures) stageProfile(plan *schedule.Plan, stage int, frozen bool) StageProfile {
	t := StageProfile{Stage: f.Stage}
	buffer := func(name string, bytes int64, class memory.Class) []Ref {
		if bytes <= 0 {
			return nil
		}
		t.Buffers = append(t.Buffers, Buffer{Name: name, Bytes: bytes, Class: class})
		return []Ref{{Own, len(t.Buffers) - 1}}
	}
	// call returns a call that allocates the buffers in born, releases the workspace, and ends the slots
	// in taken.
	call := func(born, workspace, taken, out []Ref) *Call {
		c := &Call{Taken: len(taken), Out: out}
		events := func(op Op, refs []Ref) {
			for _, ref := range refs {
				c.Events = append(c.Events, RefChange{op, ref})
			}
		}
		events(Alloc, born)
		events(Alloc, workspace)
		events(Release, workspace)
		events(Release, taken)
		return c
	}
	join := func(lists ...[]Ref) (all []Ref) {
		for _, list := range lists {
			all = append(all, list...)
		}
		return all
	}
	input, weight := buffer("saved for I", f.Input, memory.Saved), buffer("saved for W", f.Weight, memory.Saved)
	var output, gradient []Ref
	if !plan.Placement.Last(stage) {
		output = buffer("output", f.Output, memory.Activation)
	}
	if !plan.Placement.First(stage) && plan.HasBackward(stage-1) {
		gradient = buffer("gradient", f.Gradient, memory.ActGrad)
	}
	carry := buffer("carried from I to W", f.Carry, memory.Carry)
	forward, back := buffer("workspace", f.Forward, memory.Workspace), buffer("workspace of the backward", f.Backward, memory.Workspace)

	forwardCopies, backwardCopies := buffer("weights for the forward", f.ForwardWeights, memory.FP8), buffer("weights for the backward", f.BackwardWeights, memory.FP8)
	copies := join(forwardCopies, backwardCopies)
	t.Quantize, t.QuantizeEval = call(copies, nil, nil, copies), call(forwardCopies, nil, nil, forwardCopies)
	t.Quantize.Forward, t.QuantizeEval.Forward = len(forwardCopies), len(forwardCopies)
	if weights := buffer("gathered weights", f.Gathered, memory.Unsharded); weights != nil {
		t.Gather = call(weights, nil, nil, weights)
	}
	if whole := buffer("whole gradients", f.Gradients, memory.Unsharded); whole != nil {
		t.ZeroGrad = call(whole, nil, nil, whole)
	}
	t.Eval = call(output, forward, nil, output)
	if !plan.HasBackward(stage) {
		t.Forward = call(join(input, weight, output), forward, join(input, weight), output)
		return t
	}
	t.Forward = call(join(input, weight, output), forward, nil, output)
	t.Slots = join(input, weight)
	if frozen {
		t.Input = call(gradient, back, join(input, weight), gradient)
		return t
	}
	t.Whole = call(gradient, back, join(input, weight), gradient)
	t.Input = call(join(carry, gradient), back, input, gradient)
	t.Weight = call(nil, back, join(weight, carry), nil)
	return t
}
