package calls

import (
	"slices"

	"github.com/weir-ml/weir/internal/engine/frames"
	"github.com/weir-ml/weir/stages"
)

// Stage is a stage together with the facts about it that are derived from the configuration, and with
// scratch space for the arguments and results of one call.
type Stage[T any] struct {
	stages.Stage[T]
	Spec           stages.Spec
	Split          stages.SplitBackward[T] // nil if the stage cannot split its backward
	Quantizer      stages.Quantizer[T]     // nil if the stage computes with its weights directly
	Params         []frames.Use[T]
	Own            bool // the stage is on this rank
	Before, After  int  // the ranks of the stages before and after this one, or -1
	In, Out        []T
	GradOut        []T
	NoGradIn       uint64 // one bit for each input without a gradient
	NoGradOut      uint64 // one bit for each output without a gradient
	WantsGradient  bool   // an earlier stage trains, so the backward returns gradients of the inputs
	GradientWanted bool   // the stage or an earlier one trains, so the stage has a backward
	gradIn         []T
}

// Resolve sets Stages. It returns the declarations for the rank's frames, with nil for the stages of
// other ranks. loss returns the index of a loss in the ledger.
func (c *Caller[T]) Resolve(list []stages.Stage[T], loss func(name string) int) []*frames.Declaration[T] {
	c.Stages = make([]Stage[T], len(list))
	declared := make([]*frames.Declaration[T], len(list))
	trains := false
	for s := range list {
		st := &c.Stages[s]
		c.resolve(st, s, list[s])
		if c.Placement.First(s) {
			trains = false
		}
		st.WantsGradient = trains
		trains = trains || !st.Spec.Frozen
		st.GradientWanted = trains
		if st.Own {
			declared[s] = c.declare(st, loss)
		}
	}
	return declared
}

// resolve derives the facts about stage number s that do not depend on other stages' specs.
func (c *Caller[T]) resolve(st *Stage[T], s int, stage stages.Stage[T]) {
	st.Stage, st.Spec = stage, stage.Spec()
	for _, use := range stages.Params(stage) {
		st.Params = append(st.Params, frames.Use[T](use))
	}
	st.Split, _ = stage.(stages.SplitBackward[T])
	if st.Spec.Quantizes() {
		st.Quantizer, _ = stages.As[stages.Quantizer[T]](stage)
	}
	st.Own = c.Placement.Rank[s] == c.Rank
	st.Before, st.After = -1, -1
	if !c.Placement.First(s) {
		st.Before = c.Placement.Rank[s-1]
	}
	if !c.Placement.Last(s) {
		st.After = c.Placement.Rank[s+1]
	}
	st.NoGradIn, st.NoGradOut = withoutGradient(st.Spec.Inputs), withoutGradient(st.Spec.Outputs)
}

// withoutGradient returns the bits of the ports that have no gradient.
func withoutGradient(ports []stages.Port) (bits uint64) {
	for i, port := range ports {
		if port.NoGrad {
			bits |= 1 << i
		}
	}
	return bits
}

// declare allocates the scratch space of a stage on this rank, and returns the stage's declaration.
func (c *Caller[T]) declare(st *Stage[T], loss func(name string) int) *frames.Declaration[T] {
	spec := &st.Spec
	st.In, st.gradIn = make([]T, len(spec.Inputs)), make([]T, len(spec.Inputs))
	st.Out, st.GradOut = make([]T, len(spec.Outputs)), make([]T, len(spec.Outputs))
	d := &frames.Declaration[T]{
		Name: spec.Name, Inputs: len(spec.Inputs), Outputs: len(spec.Outputs),
		Slots: spec.Slots, Consumers: spec.Consumers, Params: st.Params, Recomputes: spec.Recomputes,
		LossNames: spec.Losses, InputGradient: st.WantsGradient,
	}
	for _, w := range spec.WeightCopies {
		d.WeightCopies = append(d.WeightCopies, frames.WeightCopy(w))
	}
	for _, read := range spec.Reads {
		d.Reads = append(d.Reads, frames.Read{Part: slices.Index(c.Parts, read.Part), At: read.At})
	}
	for _, name := range spec.Losses {
		d.Losses = append(d.Losses, loss(name))
	}
	return d
}
