// Package misuse contains tiny programs with one fault each, and the error that each must cause: misuse
// must not go unnoticed.
package misuse

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/internal/engine/invariants"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/loss"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/schedule/runner/record"
	"github.com/weir-ml/weir/stages"
	"github.com/weir-ml/weir/transport/local"
)

type (
	T    = kernels.Buffer
	MB   = batchctx.Microbatch[T]
	Call = func(p *program, mb MB, from, to []T)
)

// program has two stages that train one weight. The first stage returns a tensor and keeps the part
// that it reads; the last one records the loss and returns a gradient. A case changes the program.
type program struct {
	devs         []kernels.Compute // by rank
	cfg          runner.Config[T]
	source       runner.Source[T]
	microbatches int
	input        float32 // value of every element of the part
	size         int     // length of the part

	firstForward, firstBackward, lastForward, lastBackward Call
	update                                                 func(p *program, result *runner.Result) error

	// Keys of the stages, and values that cases keep.
	x     batchctx.Part
	kept  batchctx.Slot // of the first stage
	w     batchctx.Param
	h     batchctx.Slot // of the last stage
	score batchctx.Loss
	hits  batchctx.Loss // a metric
	grad  T
	view  MB
	slice []float32

	weight T

	runner *runner.Runner[T] // the runner of the program
}

func (p *program) alloc(stage int, class memory.Class, n int) T {
	b, err := p.devs[min(stage, len(p.devs)-1)].Alloc(class, kernels.Float32, n)
	if err != nil {
		panic(err)
	}
	return b
}

// sound returns the program without a fault, on the given devices, one per rank.
func sound(devs ...kernels.Compute) *program {
	p := &program{devs: devs, microbatches: 3, size: 2, input: 1}
	p.grad, p.weight = p.alloc(0, memory.Resident, 1), p.alloc(0, memory.Resident, 1)
	if err := devs[0].Zero(p.weight); err != nil {
		panic(err)
	}
	var first, last stages.Decl[T]
	p.x, p.kept, p.w = first.Part("x"), first.Slot("kept"), first.Use(batchctx.Use[T]{Name: "w", Grad: p.grad, Weight: p.weight})
	first.Outputs("h")
	last.Inputs("h")
	p.h, p.score, p.hits = last.Slot("h"), last.Loss("score"), last.Metric("hits")
	p.firstForward = func(p *program, mb MB, _, out []T) {
		x := mb.Part(p.x)
		out[0] = p.alloc(0, memory.Activation, x.N)
		mb.Check(p.devs[0].Copy(out[0], x))
		mb.Save(p.kept, mb.Retain(x))
	}
	p.firstBackward = func(p *program, mb MB, _, _ []T) {
		mb.Take(p.kept)
		if g, trains := mb.Grad(p.w); trains {
			mb.Check(p.devs[0].WriteFloat32(g, []float32{1}))
		}
	}
	p.lastForward = func(p *program, mb MB, in, _ []T) {
		values := make([]float32, in[0].N)
		mb.Check(p.devs[len(p.devs)-1].ReadFloat32(values, in[0]))
		mb.Loss(p.score, float64(values[0]), 1)
		mb.Save(p.h, mb.Retain(in[0]))
	}
	p.lastBackward = func(p *program, mb MB, _, gradIn []T) {
		mb.Take(p.h)
		mb.LossSeed(p.score)
		gradIn[0] = p.alloc(1, memory.ActGrad, 2)
	}
	p.update = func(p *program, result *runner.Result) error {
		return result.Update(func(float64) error { return nil })
	}
	call := func(c *Call) stages.Call[T] {
		return func(_ context.Context, mb MB, from, to []T) error { (*c)(p, mb, from, to); return nil }
	}
	p.cfg.Stages = []stages.Stage[T]{
		first.Stage("embed", call(&p.firstForward), call(&p.firstBackward)),
		last.Stage("head", call(&p.lastForward), call(&p.lastBackward)),
	}
	for _, dev := range devs {
		p.cfg.Spaces = append(p.cfg.Spaces, dev)
	}
	if len(devs) > 1 {
		p.cfg.Schedule = "1f1b"
	}
	p.source = runner.Indexed(func(_ context.Context, e batchctx.Entry[T]) error { p.put(e); return nil })
	return p
}

// put makes the entry of a microbatch.
func (p *program) put(e batchctx.Entry[T]) {
	values := make([]float32, p.size)
	for i := range values {
		values[i] = p.input
	}
	b := e.Must(p.devs[e.Rank()].Alloc(memory.Entry, kernels.Float32, p.size))
	e.Check(p.devs[e.Rank()].WriteFloat32(b, values))
	e.Put("x", b)
}

// run builds the program, and trains two steps. It returns the first error.
func (p *program) run(ctx context.Context) (result *runner.Result, err error) {
	r, err := runner.New(p.cfg)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	p.runner = r
	for range 2 {
		if result, err = r.Step(ctx, p.microbatches, p.source); err != nil {
			return nil, err
		}
		if err = p.update(p, result); err != nil {
			return nil, err
		}
	}
	return result, nil
}

// mine is a user-defined source.
type mine struct{ p *program }

func (m *mine) Next(_ context.Context, e batchctx.Entry[T]) error { m.p.put(e); return nil }

// after appends a call to a call of the program.
func after(call *Call, more Call) {
	before := *call
	*call = func(p *program, mb MB, from, to []T) { before(p, mb, from, to); more(p, mb, from, to) }
}

// lost discards a value that the library must not return.
func lost[E any](E) {}

// tagged returns err with -tags invariants, and nil without.
func tagged(err error) error {
	if invariants.Enabled {
		return err
	}
	return nil
}

// taggedText returns text with -tags invariants, and "" without.
func taggedText(text string) string {
	if invariants.Enabled {
		return text
	}
	return ""
}

// write returns a call that writes 1000 to the tensor that get returns.
func write(stage int, get func(p *program, mb MB, from []T) T) Call {
	return func(p *program, mb MB, from, _ []T) {
		mb.Check(p.devs[min(stage, len(p.devs)-1)].WriteFloat32(get(p, mb, from), []float32{1000}))
	}
}

var cases = []struct {
	name   string
	ranks  int // 0 means 1
	change func(p *program)
	is     error
	says   string
}{
	{name: "NaN input", change: func(p *program) { p.input = float32(math.NaN()) }, is: runner.ErrSkipped},
	{name: "NaN gradient", change: func(p *program) {
		p.firstBackward = func(p *program, mb MB, _, _ []T) {
			mb.Take(p.kept)
			grad, _ := mb.Grad(p.w)
			mb.Check(p.devs[0].WriteFloat32(grad, []float32{float32(math.NaN())}))
		}
	}, is: runner.ErrSkipped, says: `first in the gradient of "w" of stage 0 (embed)`},
	{name: "a head that forgets the objective", change: func(p *program) {
		before := p.lastForward
		p.lastForward = func(p *program, mb MB, in, out []T) {
			if mb.Index() != 1 {
				before(p, mb, in, out)
				return
			}
			mb.Save(p.h, mb.Retain(in[0]))
		}
	}, is: runner.ErrUnrecorded, says: `stage 1 (head) recorded "score" in 2 of 3 microbatches: call Microbatch.Loss in every forward`},
	{name: "the update twice", change: func(p *program) {
		p.update = func(_ *program, result *runner.Result) error {
			nothing := func(float64) error { return nil }
			return errors.Join(result.Update(nothing), result.Update(nothing))
		}
	}, is: runner.ErrUpdated},
	{name: "the update of an earlier step", change: func(p *program) {
		var first *runner.Result
		p.update = func(_ *program, result *runner.Result) error {
			if first == nil {
				first = result
				return nil
			}
			return first.Update(func(float64) error { return nil })
		}
	}, is: runner.ErrStaleResult, says: "the gradients no longer belong to step 0: update before the next step"},
	{name: "weights beyond float32", change: func(p *program) {
		p.lastForward = func(p *program, mb MB, in, _ []T) {
			mb.Loss(p.score, 1, 1e-45)
			mb.Save(p.h, mb.Retain(in[0]))
		}
	}, is: runner.ErrRange, says: `the total weight of "score" is 3e-45`},
	{name: "no update ever", change: func(p *program) { // the only way to evaluate gradients
		p.update = func(*program, *runner.Result) error { return nil }
	}},
	{name: "an update is left out", change: func(p *program) {
		p.update = func(p *program, result *runner.Result) error {
			if result.Step > 0 {
				_, err := p.runner.Step(context.Background(), p.microbatches, p.source)
				return err
			}
			return result.Update(func(float64) error { return nil })
		}
	}, is: runner.ErrUnused, says: "call Result.Update, with a function that does nothing to discard them"},
	{name: "First is ignored", change: func(p *program) { // without the tag stagetest reports it
		p.firstBackward = func(p *program, mb MB, _, _ []T) { mb.Take(p.kept); mb.GradFirst(p.w) }
	}, is: tagged(runner.ErrSkipped)},
	{name: "one source for two ranks", ranks: 2, change: func(p *program) { p.source = &mine{p} },
		says: "2 ranks and a source for one (*misuse.mine): make it with runner.Stream or runner.Indexed, or give each rank its own with runner.PerRank"},
	{name: "the same source twice", ranks: 2, change: func(p *program) { m := &mine{p}; p.source = runner.PerRank[T](m, m) },
		says: "sources 0 and 1 of PerRank are the same (*misuse.mine): to share a source, make it with runner.Stream or runner.Indexed"},
	{name: "a source too few", ranks: 2, change: func(p *program) { p.source = runner.PerRank[T](&mine{p}) }, says: "PerRank has 1 sources for 2 ranks"},
	{name: "one space for two ranks", ranks: 2, change: func(p *program) { p.cfg.Spaces[1] = p.cfg.Spaces[0] },
		says: "ranks 0 and 1 have the same space: make one for each"},
	{name: "Copy returns its argument", ranks: 2, change: func(p *program) {
		p.cfg.Topology.Copy = func(_, _ int, b T) (T, error) { return b, nil }
	}, is: local.ErrNoCopy, says: "Topology.Copy returned the handle of rank 0: return a copy, of class Transfer, in the space of rank 1"},
	{name: "a rank in no process", ranks: 2, change: func(p *program) { p.cfg.Topology.Ranks = 3 }, says: "2 of 3 ranks are in this process and Topology.Transport is nil"},
	{name: "an unknown schedule", ranks: 2, change: func(p *program) { p.cfg.Schedule = "1f1bb" }, says: "did you mean 1f1b?"},
	{name: "a nil device", change: func(p *program) { p.cfg.Spaces[0] = (*kernels.Host)(nil) }, says: "the space of rank 0 is nil"},
	{name: "a source without a function", change: func(p *program) { p.source = runner.Indexed[T](nil) }, says: "the function of Indexed is nil"},
	{name: "a stream without a function", change: func(p *program) { p.source = runner.Stream[T, int](nil, nil) }, says: "a function of Stream is nil: pass next and put"},
	{name: "gradients that are written between the step and its update", change: func(p *program) {
		p.update = func(p *program, result *runner.Result) error {
			return errors.Join(p.devs[0].Zero(p.grad), result.Update(func(float64) error { return nil }))
		}
	}, is: runner.ErrOverwritten, says: `the sum of squares of the gradient of "w" of stage 0 (embed) was 1 and is 0: change gradients only in the function of Update`},
	{name: "gradients that are released between the step and its update", change: func(p *program) {
		p.update = func(p *program, result *runner.Result) error {
			_, err := p.devs[0].Release(p.grad)
			return errors.Join(err, result.Update(func(float64) error { return nil }))
		}
	}, says: "the gradients can no longer be read"},
	{name: "an update without a function", change: func(p *program) {
		p.update = func(_ *program, result *runner.Result) error { return result.Update(nil) }
	}, says: "the function of Update is nil: pass the optimizer's step"},
	{name: "a nil stage", change: func(p *program) { p.cfg.Stages[1] = nil }, says: "stage 1 is nil"},
	{name: "no spaces", change: func(p *program) { p.cfg.Spaces = nil }, says: "there are no Spaces: give one for each rank of this process, runner.Spaces(space)"},
	{name: "no microbatches", change: func(p *program) { p.microbatches = 0 }, says: "0 microbatches"},
	{name: "no objective", change: func(p *program) { p.cfg.Losses = []loss.Def{{Name: "score", Metric: true}, {Name: "hits"}} }, is: runner.ErrNoObjective},
	{name: "a loss that is not listed", change: func(p *program) {
		p.cfg.Losses = []loss.Def{{Name: "other", Objective: true}, {Name: "hits", Metric: true}}
	},
		says: `stage 1 (head) records loss "score", which Losses does not contain: list all losses that stages record`},
	{name: "an accumulator of another arena", ranks: 2, change: func(p *program) {
		var d stages.Decl[T]
		d.Param("w", p.alloc(1, memory.Resident, 1))
		p.cfg.Stages[0] = &stages.Func[T]{Declares: p.cfg.Stages[0].Spec(), Parameters: d.Params()}
	}, says: `stage 0 (embed): the gradient of "w" is not a buffer of rank 0: allocate it in the space of the stage's rank`},
	{name: "an accumulator that is not resident", change: func(p *program) {
		var d stages.Decl[T]
		d.Param("w", p.alloc(0, memory.ActGrad, 1))
		p.cfg.Stages[0] = &stages.Func[T]{Declares: p.cfg.Stages[0].Spec(), Parameters: d.Params()}
	}, says: `stage 0 (embed): the gradient of "w" has class actgrad: allocate it as memory.Resident`},

	{name: "a part that is not read", change: func(p *program) {
		p.source = runner.Indexed(func(_ context.Context, e batchctx.Entry[T]) error {
			p.put(e)
			e.Put("y", p.alloc(0, memory.Entry, 1))
			return nil
		})
	}, is: batchctx.ErrUnread, says: `part "y" of microbatch 0, but stages read ["x"]: declare the read, Decl.Part("y"), or do not put it`},
	{name: "a part that is missing", change: func(p *program) {
		p.source = runner.Indexed(func(context.Context, batchctx.Entry[T]) error { return nil })
	}, is: batchctx.ErrMissing, says: `the source gave no "x" for microbatch 0: Put it`},
	{name: "a part twice", change: func(p *program) {
		p.source = runner.Indexed(func(_ context.Context, e batchctx.Entry[T]) error { p.put(e); p.put(e); return nil })
	}, is: batchctx.ErrOccupied, says: `part "x" of microbatch 0 was put already`},
	{name: "an entry that is kept", change: func(p *program) {
		var kept *batchctx.Entry[T]
		p.source = runner.Indexed(func(_ context.Context, e batchctx.Entry[T]) error {
			if kept == nil {
				kept = &e
			}
			p.put(*kept)
			return nil
		})
	}, is: batchctx.ErrEnded},
	{name: "a part at the wrong action", change: func(p *program) {
		p.firstBackward = func(p *program, mb MB, _, _ []T) { lost(mb.Part(p.x)) }
	}, is: batchctx.ErrDropped, says: `part "x" in B: declare this read, Decl.Part("x", AtForward|AtBackward)`},
	{name: "a handle is kept and read in a later call", change: func(p *program) {
		var kept T
		after(&p.firstForward, func(p *program, mb MB, _, _ []T) { kept = mb.Part(p.x) })
		after(&p.firstBackward, func(p *program, mb MB, _, _ []T) {
			mb.ReleaseSaved(p.kept)
			mb.Check(p.devs[0].ReadFloat32(make([]float32, 1), kept))
		})
	}, is: memory.ErrStale},
	{name: "a borrowed part is released", change: func(p *program) {
		after(&p.firstForward, func(p *program, mb MB, _, _ []T) { mb.Release(mb.Part(p.x)) })
	}, is: memory.ErrNoPlain, says: "Release only handles that you have allocated or retained; the step releases borrowed handles"},

	{name: "saved and never taken", change: func(p *program) {
		p.firstBackward = func(p *program, mb MB, _, _ []T) { lost(first(mb.Grad(p.w))) }
	}, is: batchctx.ErrUntaken, says: `slot "kept" of stage 0 (embed): Take it in B, End it if it is not needed, or do not Save it`},
	{name: "taken twice", change: func(p *program) {
		after(&p.firstBackward, func(p *program, mb MB, _, _ []T) { mb.Take(p.kept) })
	}, is: batchctx.ErrTaken, says: `slot "kept": take once and keep the handle for the call`},
	{name: "saved twice", change: func(p *program) {
		after(&p.firstForward, func(p *program, mb MB, _, _ []T) { mb.Save(p.kept, p.alloc(0, memory.Saved, 1)) })
	}, is: batchctx.ErrOccupied, says: `slot "kept" holds a saved tensor already: declare another slot`},
	{name: "saved without a reference", change: func(p *program) {
		p.lastForward = func(p *program, mb MB, in, _ []T) { mb.Loss(p.score, 1, 1); mb.Save(p.h, in[0]) }
	}, is: memory.ErrNoPlain, says: `Save in slot "h" takes over a reference: Retain a borrowed handle first`},
	{name: "taken and never saved", change: func(p *program) {
		p.lastForward = func(p *program, mb MB, _, _ []T) { mb.Loss(p.score, 1, 1) }
	}, is: batchctx.ErrEmpty, says: `slot "h": Save it in every forward`},
	{name: "a saved tensor is kept", change: func(p *program) {
		after(&p.firstBackward, func(p *program, mb MB, _, _ []T) {})
		p.firstForward = func(p *program, mb MB, _, out []T) {
			out[0] = p.alloc(0, memory.Activation, 2)
			b := p.alloc(0, memory.Saved, 1)
			mb.Retain(b)
			mb.Save(p.kept, b)
		}
	}, is: batchctx.ErrLeak, says: "a tensor it saved was released with this action and is still referenced, by this stage or by its producer"},
	{name: "a workspace is lost", change: func(p *program) {
		after(&p.firstForward, func(p *program, mb MB, _, _ []T) { p.alloc(0, memory.Workspace, 1) })
	}, is: batchctx.ErrLeak, says: "allocated but neither released nor handed over: this action lost it"},
	{name: "a slice of a released buffer is written", change: func(p *program) {
		after(&p.firstForward, func(p *program, mb MB, _, _ []T) {
			b := p.alloc(0, memory.Workspace, 1)
			kept := p.devs[0].(kernels.Addressable).Float32s(b)
			mb.Release(b)
			kept[0] = 1
			mb.Release(mb.Must(p.devs[0].Alloc(memory.Workspace, kernels.Float32, 1)))
		})
	}, is: tagged(memory.ErrStale)},
	{name: "a weight is written in a forward", change: func(p *program) {
		after(&p.firstForward, write(0, func(p *program, _ MB, _ []T) T { return p.weight }))
	}, is: tagged(batchctx.ErrChanged), says: taggedText(`action 0F0 (stage 0 embed, microbatch 0): batchctx: a tensor that may only be read has changed: the weight of "w" of stage 0 (embed), during this call`)},
	{name: "a weight is written by a hook", change: func(p *program) {
		p.cfg.Hooks.Microbatch = func(*memory.Sample) { _ = p.devs[0].WriteFloat32(p.weight, []float32{1000}) }
	}, is: tagged(batchctx.ErrChanged), says: taggedText(`the weight of "w" of stage 0 (embed), before this call: a hook`)},
	{name: "a weight is written after the last call", change: func(p *program) {
		p.microbatches = 1
		p.cfg.Hooks.Microbatch = func(*memory.Sample) { _ = p.devs[0].WriteFloat32(p.weight, []float32{1000}) }
	}, is: tagged(batchctx.ErrChanged), says: taggedText(`the weight of "w" of stage 0 (embed), after its last call`)},
	{name: "a part is written by a stage that reads it", change: func(p *program) {
		after(&p.firstForward, write(0, func(p *program, mb MB, _ []T) T { return mb.Part(p.x) }))
	}, is: tagged(batchctx.ErrChanged), says: taggedText(`action 0F0 (stage 0 embed, microbatch 0): batchctx: a tensor that may only be read has changed: `)},
	{name: "an input is written", ranks: 2, change: func(p *program) {
		after(&p.lastForward, write(1, func(_ *program, _ MB, in []T) T { return in[0] }))
	}, is: tagged(batchctx.ErrChanged), says: taggedText(`action 1F0 (stage 1 head, microbatch 0): batchctx: a tensor that may only be read has changed: input 0 of stage 1 (head), during this call`)},
	{name: "a saved tensor that another stage has saved too is written", change: func(p *program) {
		p.firstForward = func(p *program, mb MB, _, out []T) {
			out[0] = p.alloc(0, memory.Activation, 2)
			mb.Check(p.devs[0].Copy(out[0], mb.Part(p.x)))
			mb.Save(p.kept, mb.Retain(out[0]))
		}
		p.lastBackward = func(p *program, mb MB, _, gradIn []T) {
			mb.Check(p.devs[0].WriteFloat32(mb.Take(p.h), []float32{1000}))
			mb.LossSeed(p.score)
			gradIn[0] = p.alloc(1, memory.ActGrad, 2)
		}
	}, is: tagged(batchctx.ErrChanged), says: taggedText(`(stage 0 embed, microbatch 0): batchctx: a tensor that may only be read has changed: slot "kept" of stage 0 (embed), before this call`)},
	{name: "a slice is kept and written in a later call", change: func(p *program) {
		after(&p.firstForward, func(p *program, mb MB, _, _ []T) {
			p.slice = p.devs[0].(kernels.Addressable).Float32s(mb.Part(p.x))
		})
		after(&p.firstBackward, func(p *program, mb MB, _, _ []T) { mb.ReleaseSaved(p.kept); p.slice[0] = 1000 })
	}, is: tagged(memory.ErrStale), says: taggedText("action 0B0 (stage 0 embed, microbatch 0): during this call: memory: ")},
	{name: "a slice is kept and written between steps", change: func(p *program) {
		after(&p.firstForward, func(p *program, mb MB, _, _ []T) {
			p.slice = p.devs[0].(kernels.Addressable).Float32s(mb.Part(p.x))
		})
		p.update = func(p *program, result *runner.Result) error {
			p.slice[0] = 1000
			return result.Update(func(float64) error { return nil })
		}
	}, is: tagged(memory.ErrStale)},
	{name: "a view is kept", change: func(p *program) {
		after(&p.firstForward, func(p *program, mb MB, _, _ []T) {
			if p.view == (MB{}) {
				p.view = mb
			}
		})
		after(&p.firstBackward, func(p *program, _ MB, _, _ []T) { p.view.Index() })
	}, is: batchctx.ErrEnded},
	{name: "an error is swallowed", change: func(p *program) {
		after(&p.firstBackward, func(p *program, mb MB, _, _ []T) {
			defer func() { _ = recover() }()
			mb.Take(p.kept)
		})
	}, is: batchctx.ErrTaken},
	{name: "a handle of another arena", change: func(p *program) {
		other, _ := kernels.NewHost(kernels.HostConfig{Capacity: 1 << 20})
		p.firstForward = func(p *program, mb MB, _, out []T) {
			mb.Save(p.kept, mb.Retain(mb.Part(p.x)))
			out[0] = mb.Must(other.Alloc(memory.Activation, kernels.Float32, 2))
		}
	}, is: memory.ErrOtherArena},
	{name: "an output is not set", change: func(p *program) {
		p.firstForward = func(p *program, mb MB, _, _ []T) { mb.Save(p.kept, mb.Retain(mb.Part(p.x))) }
	}, is: batchctx.ErrMissing, says: "(stage 0 embed, microbatch 0): the stage set no output 0 (h): set out[0] in Forward"},
	{name: "the gradient of an input is not set", change: func(p *program) {
		p.lastBackward = func(p *program, mb MB, _, _ []T) { mb.Take(p.h) }
	}, is: batchctx.ErrMissing, says: "(stage 1 head, microbatch 0): the stage set no gradient of input 0 (h): set gradIn[0] in the backward"},
	{name: "a gradient of another size", change: func(p *program) {
		p.lastBackward = func(p *program, mb MB, _, gradIn []T) {
			mb.Take(p.h)
			mb.LossSeed(p.score)
			gradIn[0] = p.alloc(1, memory.ActGrad, 1)
		}
	}, is: batchctx.ErrSize, says: "(stage 1 head, microbatch 0): batchctx: a gradient of another size than its input: gradIn[0] has 4 bytes, and the input had 8"},
	{name: "an output that is a workspace", change: func(p *program) {
		p.firstForward = func(p *program, mb MB, _, out []T) {
			mb.Save(p.kept, mb.Retain(mb.Part(p.x)))
			out[0] = p.alloc(0, memory.Workspace, 2)
		}
	}, is: batchctx.ErrClass, says: "workspace, want one of resident, activation, transfer"},
	{name: "a saved tensor that is a workspace", change: func(p *program) {
		p.firstForward = func(p *program, mb MB, _, out []T) {
			mb.Save(p.kept, p.alloc(0, memory.Workspace, 2))
			out[0] = p.alloc(0, memory.Activation, 2)
		}
	}, is: batchctx.ErrClass, says: "workspace, want one of"},
	{name: "a gradient that is an activation", change: func(p *program) {
		p.lastBackward = func(p *program, mb MB, _, gradIn []T) {
			mb.Take(p.h)
			mb.LossSeed(p.score)
			gradIn[0] = p.alloc(1, memory.Activation, 2)
		}
	}, is: batchctx.ErrClass, says: "activation, want one of resident, actgrad, saved, carry, transfer"},
	{name: "a part that is a workspace", change: func(p *program) {
		p.source = runner.Indexed(func(_ context.Context, e batchctx.Entry[T]) error {
			e.Put("x", p.alloc(0, memory.Workspace, 2))
			return nil
		})
	}, is: batchctx.ErrClass, says: `part "x" of microbatch 0: batchctx: a buffer of another class: workspace, want one of resident, entry`},
	{name: "an input is returned without a reference", change: func(p *program) {
		p.lastBackward = func(p *program, mb MB, _, gradIn []T) { gradIn[0] = mb.Take(p.h) }
	}, is: memory.ErrNoPlain, says: "tensor 0 takes over a reference: Retain a borrowed handle first"},
	{name: "a part is returned without a reference", change: func(p *program) {
		p.firstForward = func(p *program, mb MB, _, out []T) {
			out[0] = mb.Part(p.x)
			mb.Save(p.kept, p.alloc(0, memory.Saved, 1))
		}
	}, is: memory.ErrNoPlain, says: "tensor 0 takes over a reference: Retain a borrowed handle first"},
	{name: "stages whose names do not fit", change: func(p *program) {
		var d stages.Decl[T]
		d.Inputs("hidden")
		p.cfg.Stages[1] = d.Stage("head", nil, nil)
	}, says: `output 0 of "embed" is "h", and input 0 of "head" is "hidden": give both the same name`},
	{name: "no contribution", change: func(p *program) {
		p.firstBackward = func(p *program, mb MB, _, _ []T) { mb.Take(p.kept) }
	}, is: batchctx.ErrContribution, says: `parameter "w" of stage 0 (embed): 0 of 3 microbatches; declare it Sometimes or Frozen if that is intended`},
	{name: "two contributions", change: func(p *program) {
		after(&p.firstBackward, func(p *program, mb MB, _, _ []T) { lost(first(mb.Grad(p.w))) })
	}, is: batchctx.ErrContribution, says: `a second contribution to "w" in a microbatch: ask for the gradient once, and add the sum`},
	{name: "a gradient in the forward", change: func(p *program) {
		after(&p.firstForward, func(p *program, mb MB, _, _ []T) { lost(first(mb.Grad(p.w))) })
	}, is: batchctx.ErrMisplaced, says: `gradient of "w" in F: contribute in B or W`},
	{name: "a loss in the backward", change: func(p *program) {
		after(&p.lastBackward, func(p *program, mb MB, _, _ []T) { mb.Loss(p.score, 1, 1) })
	}, is: batchctx.ErrMisplaced, says: `loss "score" in B: record it in the forward`},
	{name: "an objective twice in one microbatch and never in another", change: func(p *program) {
		before := p.lastForward
		p.lastForward = func(p *program, mb MB, in, out []T) {
			if mb.Index() == 1 {
				mb.Save(p.h, mb.Retain(in[0]))
				return
			}
			before(p, mb, in, out)
			if mb.Index() == 2 {
				mb.Loss(p.score, 1, 1)
			}
		}
	}, is: batchctx.ErrContribution, says: `a second record of "score" in a microbatch: call Loss once, with the total sum and weight`},
	{name: "a seed that no backward asks for", change: func(p *program) {
		p.lastBackward = func(p *program, mb MB, _, gradIn []T) {
			mb.Take(p.h)
			gradIn[0] = p.alloc(1, memory.ActGrad, 2)
		}
	}, is: runner.ErrUnseeded, says: `stage 1 (head) records "score", which trains: ask for its seed (Microbatch.LossSeed) and multiply its gradient by it, or declare it with Decl.Metric`},
	{name: "the seed of a metric", change: func(p *program) { after(&p.lastBackward, func(p *program, mb MB, _, _ []T) { mb.LossSeed(p.hits) }) }, is: batchctx.ErrUndeclared,
		says: `the seed of "hits", which is a metric: declare it with Decl.Loss and give it a Coefficient in Losses, or leave it out of the backward`},
	{name: "a term that is neither trained nor a metric", change: func(p *program) {
		p.cfg.Losses = []loss.Def{{Name: "score", Objective: true}, {Name: "aux"}}
	}, says: `def 1 ("aux"): it is neither the objective nor a metric and has no coefficient: set one of Objective, Metric and Coefficient`},
	{name: "an objective that a stage declares as a metric", change: func(p *program) {
		var d stages.Decl[T]
		d.Inputs("h")
		d.Metric("score")
		p.cfg.Losses, p.cfg.Stages[1] = []loss.Def{{Name: "score", Objective: true}}, d.Stage("head", nil, nil)
	}, says: `def 0 ("score"): it is a metric, according to this def or to a stage, and is trained`},
	{name: "a loss with a negative weight", change: func(p *program) {
		p.lastForward = func(p *program, mb MB, _, _ []T) { mb.Loss(p.score, 1, -1) }
	}, is: loss.ErrWeight},
	{name: "a key of another stage", change: func(p *program) {
		after(&p.firstForward, func(p *program, mb MB, _, _ []T) { mb.Loss(p.score, 1, 1) })
	}, is: batchctx.ErrUndeclared, says: "loss 1, but the stage declares 0: use the keys of its own Decl"},
	{name: "a key that was never declared", change: func(p *program) {
		after(&p.firstForward, func(p *program, mb MB, _, _ []T) { mb.Save(0, p.alloc(0, memory.Saved, 1)) })
	}, is: batchctx.ErrUndeclared, says: "slot 0, but the stage declares 1"},
}

func first[A, B any](a A, _ B) A { return a }

func TestWrongUseIsTold(t *testing.T) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			p := sound(hosts(t, max(c.ranks, 1))...)
			c.change(p)
			_, err := p.run(t.Context())
			if c.is == nil && c.says == "" {
				require.NoError(t, err, "it is reported now: put the error into the table")
				return
			}
			require.Error(t, err)
			if c.is != nil {
				require.ErrorIs(t, err, c.is)
			}
			require.ErrorContains(t, err, c.says)
		})
	}
	for ranks := 1; ranks <= 2; ranks++ {
		_, err := sound(hosts(t, ranks)...).run(t.Context())
		require.NoError(t, err, "the program without a fault on %d ranks", ranks)
	}
}

func hosts(t *testing.T, n int) (devs []kernels.Compute) {
	for range n {
		host, err := kernels.NewHost(kernels.HostConfig{Capacity: 1 << 20})
		require.NoError(t, err)
		t.Cleanup(func() { _ = host.Close() })
		devs = append(devs, host)
	}
	return devs
}

// TestKeptSlices keeps slices of released buffers. With -tags invariants they are poisoned,
// whatever the buffer's class and the size of its device.
func TestKeptSlices(t *testing.T) {
	if !invariants.Enabled {
		t.Skip("only a build with -tags invariants poisons released memory")
	}
	for _, capacity := range []int64{0, 1 << 16, 1 << 20} {
		host, err := kernels.NewHost(kernels.HostConfig{Capacity: capacity})
		require.NoError(t, err)
		for class := range memory.Class(memory.NumClasses) {
			b, err := host.Floats(class, 1, 2)
			require.NoError(t, err)
			kept := host.Float32s(b)
			_, err = host.Release(b)
			require.NoError(t, err)
			poison := math.Float32frombits(0xDBDBDBDB)
			require.Equal(t, []float32{poison, poison}, kept, "%v, capacity %d", class, capacity)
		}
		require.NoError(t, host.Close())
	}
}

// TestOtherShapesThanTheProfile allocates a size that is not in the profile of the planned memory.
// The allocation fails.
func TestOtherShapesThanTheProfile(t *testing.T) {
	host := hosts(t, 1)[0]
	dry := sound(kernels.NewNull(host.(*kernels.Host)))
	profile, err := record.Stages(t.Context(), dry.cfg, record.Shape[T]{Name: "two", Source: dry.source})
	require.NoError(t, err)
	p := sound(host)
	p.cfg.Memory.Profile = profile
	_, err = p.run(t.Context())
	require.NoError(t, err)
	p.size = 3
	_, err = p.run(t.Context())
	require.ErrorIs(t, err, memory.ErrUnplanned)
	require.ErrorContains(t, err, "12 bytes (entry) requested")
}

// TestGCSpaceTensorsAreNotAudited uses garbage-collected memory, which no allocator's book
// contains: stages/stagetest reports a stage that keeps a pointer, and the growth of a step says
// that it was not audited.
func TestGCSpaceTensorsAreNotAudited(t *testing.T) {
	type number = *[8]float64
	var d stages.Decl[number]
	x, slot, sum := d.Part("x"), d.Slot("x"), d.Loss("sum")
	var kept []number
	stage := d.Stage("hoarder",
		func(_ context.Context, mb batchctx.Microbatch[number], _, _ []number) error {
			h := mb.Part(x)
			kept = append(kept, h)
			mb.Loss(sum, h[0], 1)
			mb.Save(slot, mb.Retain(h))
			return nil
		},
		func(_ context.Context, mb batchctx.Microbatch[number], _, _ []number) error {
			mb.Take(slot)
			return nil
		})
	space := memory.NewLeakTrackingSpace(nil, func(number) int64 { return 1024 })
	r, err := runner.New(runner.Config[number]{
		Stages: []stages.Stage[number]{stage}, Spaces: runner.Spaces[number](space),
	})
	require.NoError(t, err)
	source := runner.Indexed(func(_ context.Context, e batchctx.Entry[number]) error {
		e.Put("x", &[8]float64{float64(e.Index())})
		return nil
	})
	result, err := r.Step(t.Context(), 4, source)
	require.NoError(t, err)
	require.Len(t, kept, 4)
	require.Equal(t, "not audited", fmt.Sprint(result.Growth))

	// The space finds kept tensors; others are not reachable.
	for step, m := range []int{0, 3, 5, 7, 11} { // 7 is step 3, which is not watched
		want := m
		if step > 0 {
			kept = nil
			_, err = r.Step(t.Context(), m, source)
			require.NoError(t, err)
			if step == 3 {
				want = 0
			}
		} else {
			want = 4
		}
		handles, bytes := space.StillReachable()
		require.Equal(t, want, handles, "step %d", step)
		require.Equal(t, int64(1024*want), bytes)
	}
	kept = nil
	handles, _ := space.StillReachable()
	require.Zero(t, handles)
}

func TestANilContext(t *testing.T) {
	p := sound(hosts(t, 1)...)
	var none context.Context
	_, err := p.run(none)
	require.ErrorContains(t, err, "runner: the context is nil")
	r, err := runner.New(p.cfg)
	require.NoError(t, err)
	defer r.Close()
	_, err = r.Prepare(none, 3, p.source)
	require.ErrorContains(t, err, "runner: the context is nil")
	_, err = record.Stages(none, p.cfg, record.Shape[T]{Name: "two", Source: p.source})
	require.ErrorContains(t, err, "record: the context is nil")
}

// TestOtherGoroutines makes calls on goroutines that the stage starts. If a call fails, it ends the
// process with a message that explains it; if a group rethrows the panic, it ends only the step.
func TestOtherGoroutines(t *testing.T) {
	p := sound(hosts(t, 1)...)
	bring := os.Getenv("MISUSE_GOROUTINE") == ""
	after(&p.firstBackward, func(p *program, mb MB, _, _ []T) {
		var group sync.WaitGroup
		var brought any
		group.Go(func() {
			if bring {
				defer func() { brought = recover() }()
			}
			mb.Take(p.kept)
		})
		group.Wait()
		panic(fmt.Errorf("a goroutine of the group: %w", brought.(error)))
	})
	_, err := p.run(t.Context())
	require.ErrorIs(t, err, batchctx.ErrTaken)

	again := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestOtherGoroutines$")
	again.Env = append(os.Environ(), "MISUSE_GOROUTINE=1")
	out, err := again.CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "only on the goroutine of their call")
}
