package layout

import (
	"fmt"
	"iter"

	"github.com/weir-ml/weir/internal/formats/diagnostic"
	"github.com/weir-ml/weir/schedule"
)

// stage returns the profile of a stage of a plan. If the plan runs several copies of a model, the profile
// may describe the stages of just one copy.
func (t *Profile) stage(shape, stage int) *StageProfile {
	all := t.Shapes[shape].Stages
	return &all[stage%len(all)]
}

// params returns a stage's uses of parameters.
func (t *Profile) params(stage int) []Param {
	if len(t.Params) == 0 {
		return nil
	}
	return t.Params[stage%len(t.Params)]
}

// trained iterates over the names of a stage's trained parameters, with their indices.
func (t *Profile) trained(stage int) iter.Seq2[int, string] {
	return func(yield func(int, string) bool) {
		for i, param := range t.params(stage) {
			if !param.Frozen && !yield(i, param.Name) {
				return
			}
		}
	}
}

// call returns the call of a stage for an action of this kind, or nil if its profile has none.
func (t *StageProfile) call(kind schedule.Kind, plan *schedule.Plan, stage int) *Call {
	switch kind {
	case schedule.F:
		if plan.Mode == schedule.ForwardOnly {
			return t.Eval
		}
		return t.Forward
	case schedule.B:
		return t.Whole
	case schedule.I:
		return t.Input
	case schedule.W:
		return t.Weight
	case schedule.Unshard:
		return t.Gather
	case schedule.ZeroGrad:
		return t.ZeroGrad
	case schedule.Quantize:
		if plan.HasBackward(stage) {
			return t.Quantize
		}
		return t.QuantizeEval
	}
	return nil
}

// port is the size of a tensor that one stage hands over to another; it is 0 bytes if the port has no
// tensor.
type port struct {
	bytes  int64
	atMost bool
}

// ports returns the sizes of the tensors that stages hand over, which a receiver allocates.
type ports struct {
	plan     *schedule.Plan
	profile  *Profile
	backward []schedule.Kind // by stage: B, or I if the plan splits the backward; the zero Kind without a backward
}

func newPorts(plan *schedule.Plan, profile *Profile) *ports {
	p := &ports{plan: plan, profile: profile, backward: make([]schedule.Kind, plan.Placement.Stages())}
	for _, program := range plan.Programs {
		for a := range schedule.StaticActions(program) {
			if kind := a.Kind(); kind == schedule.B || kind == schedule.I {
				p.backward[a.Stage()] = kind
			}
		}
	}
	return p
}

// handed returns the ports of a stage whose tensors another stage receives. F hands over to the next
// stage, the backward to the previous one.
func (p *ports) handed(shape, stage int, forward bool) ([]port, error) {
	kind := schedule.F
	if !forward {
		kind = p.backward[stage]
	}
	t := p.profile.stage(shape, stage)
	call := t.call(kind, p.plan, stage)
	if call == nil {
		return nil, diagnostic.Errorf(ErrProfile, "stage %d (%s) has no profile of %v", stage, t.Stage, kind)
	}
	list := make([]port, len(call.Out))
	for i, ref := range call.Out {
		var err error
		if list[i], err = p.size(shape, stage, ref); err != nil {
			return nil, diagnostic.Errorf(ErrProfile, "stage %d (%s), %v hands over at port %d: %w", stage, t.Stage, kind, i, err)
		}
	}
	return list, nil
}

// size returns the size of a buffer that a stage refers to, whether the stage owns the buffer or was handed it.
func (p *ports) size(shape, stage int, ref Ref) (port, error) {
	t := p.profile.stage(shape, stage)
	switch ref.Kind {
	case None:
		return port{}, nil
	case Own:
		if ref.Index < len(t.Buffers) {
			b := t.Buffers[ref.Index]
			return port{b.Bytes, b.AtMost}, nil
		}
	case In:
		if !p.plan.Placement.First(stage) {
			return p.received(shape, stage-1, true, ref.Index)
		}
	case GradOut:
		if !p.plan.Placement.Last(stage) {
			return p.received(shape, stage+1, false, ref.Index)
		}
	case PartRead:
		for _, e := range p.profile.Shapes[shape].Entries {
			if ref.Index < len(e.Out) && e.Out[ref.Index].Kind == Own {
				b := e.Buffers[e.Out[ref.Index].Index]
				return port{b.Bytes, b.AtMost}, nil
			}
		}
	}
	return port{}, fmt.Errorf("%v does not exist", ref)
}

// received returns port i of the ports that a stage hands over.
func (p *ports) received(shape, from int, forward bool, i int) (port, error) {
	list, err := p.handed(shape, from, forward)
	if err == nil && i >= len(list) {
		err = fmt.Errorf("there are %d ports", len(list))
	}
	if err != nil {
		return port{}, err
	}
	return list[i], nil
}

// String returns the kind and the index of the buffer that r names.
func (r Ref) String() string {
	return fmt.Sprintf("%s %d", [...]string{"none", "buffer", "input", "gradient of output", "entry part"}[min(r.Kind, PartRead)], r.Index)
}
