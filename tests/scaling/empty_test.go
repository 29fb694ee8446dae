package scaling_test

import (
	"context"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/stages"
)

// empty is a stage that computes nothing. Its forward saves its input and allocates an output; its
// backward takes the input and allocates a gradient.
type empty struct {
	arena       *memory.Arena
	first, last bool
}

func (e *empty) Spec() stages.Spec {
	spec := stages.Spec{Name: "empty", Slots: []string{"x"}}
	if e.first {
		spec.Reads = []stages.Read{{Part: "tokens"}}
	} else {
		spec.Inputs = []stages.Port{{Name: "x"}}
	}
	if !e.last {
		spec.Outputs = []stages.Port{{Name: "x"}}
	}
	return spec
}

func (e *empty) Forward(_ context.Context, mb batchctx.Microbatch[memory.Handle], in, out []memory.Handle) error {
	if !e.first {
		mb.Save(1, mb.Retain(in[0]))
	}
	if e.last {
		return nil
	}
	var err error
	out[0], err = e.arena.Alloc(memory.Activation, 64)
	return err
}

func (e *empty) Backward(_ context.Context, mb batchctx.Microbatch[memory.Handle], gradOut, gradIn []memory.Handle) error {
	if e.first {
		return nil
	}
	_ = mb.Take(1)
	var err error
	gradIn[0], err = e.arena.Alloc(memory.ActGrad, 64)
	return err
}

func emptyConfig(arena *memory.Arena) runner.Config[memory.Handle] {
	return runner.Config[memory.Handle]{
		Spaces: runner.Spaces(arena),
		Stages: []stages.Stage[memory.Handle]{
			&empty{arena: arena, first: true}, &empty{arena: arena},
			&empty{arena: arena}, &empty{arena: arena, last: true},
		},
	}
}

func emptySource(arena *memory.Arena) runner.Source[memory.Handle] {
	return runner.Indexed(func(_ context.Context, entry batchctx.Entry[memory.Handle]) error {
		h, err := arena.Alloc(memory.Entry, 64)
		if err != nil {
			return err
		}
		entry.Put("tokens", h)
		return nil
	})
}
