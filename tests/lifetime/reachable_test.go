package lifetime_test

import (
	"context"
	"errors"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"runtime"
	"sync"
	"testing"
	"weak"

	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/internal/testing/testkit"
	"github.com/weir-ml/weir/loss"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/stages"
)

// tensor is garbage-collected memory.
type tensor struct{ data [64]float64 }

// nursery makes tensors and keeps weak pointers to them, with the microbatch of each.
type nursery struct {
	mu   sync.Mutex
	born []weak.Pointer[tensor]
	of   []int
}

func (n *nursery) make(microbatch int) *tensor {
	n.mu.Lock()
	defer n.mu.Unlock()
	t := &tensor{}
	n.born = append(n.born, weak.Make(t))
	n.of = append(n.of, microbatch)
	return t
}

// alive counts the reachable tensors of microbatches that have retired.
func (n *nursery) alive(retired map[int]bool) int {
	runtime.GC()
	count := 0
	for i, p := range n.born {
		if retired[n.of[i]] && p.Value() != nil {
			count++
		}
	}
	return count
}

// chain returns three stages that make tensors from the nursery.
func (n *nursery) chain() []stages.Stage[*tensor] {
	x := []stages.Port{{Name: "x"}}
	type mb = batchctx.Microbatch[*tensor]
	bottom := &stages.Func[*tensor]{
		Declares: stages.Spec{Name: "bottom", Reads: []stages.Read{{Part: "in"}}, Outputs: x, Slots: []string{"x"}},
		ForwardFunc: func(_ context.Context, m mb, _, out []*tensor) error {
			part := m.Part(1)
			out[0] = n.make(m.Index())
			m.Save(1, m.Retain(part))
			return nil
		},
		BackwardFunc: func(_ context.Context, m mb, _, _ []*tensor) error {
			m.Take(1)
			return nil
		},
	}
	middle := &stages.Func[*tensor]{
		Declares: stages.Spec{Name: "middle", Inputs: x, Outputs: x, Slots: []string{"x", "carry"}},
		ForwardFunc: func(_ context.Context, m mb, in, out []*tensor) error {
			out[0] = n.make(m.Index())
			m.Save(1, m.Retain(in[0]))
			m.Save(2, n.make(m.Index()))
			return nil
		},
		BackwardFunc: func(_ context.Context, m mb, _, gradIn []*tensor) error {
			m.Take(1)
			m.ReleaseSaved(2)
			gradIn[0] = n.make(m.Index())
			return nil
		},
	}
	top := &stages.Func[*tensor]{
		Declares: stages.Spec{Name: "top", Inputs: x, Slots: []string{"x"}, Losses: []string{"loss"}},
		ForwardFunc: func(_ context.Context, m mb, in, _ []*tensor) error {
			m.Save(1, m.Retain(in[0]))
			m.Loss(1, in[0].data[0], 1)
			return nil
		},
		BackwardFunc: func(_ context.Context, m mb, _, gradIn []*tensor) error {
			m.Take(1)
			m.LossSeed(1)
			gradIn[0] = n.make(m.Index())
			return nil
		},
	}
	return []stages.Stage[*tensor]{bottom, middle, stages.Recompute[*tensor](middle), top}
}

// loader is a source that can be watched.
type loader struct{ nursery *nursery }

func (l *loader) Next(_ context.Context, e batchctx.Entry[*tensor]) error {
	e.Put("in", l.nursery.make(e.Index()))
	return nil
}

// TestNothingIsReachableOnceAMicrobatchHasRetired uses garbage-collected handles: weak pointers
// show references that no book contains.
func TestNothingIsReachableOnceAMicrobatchHasRetired(t *testing.T) {
	for name, rule := range map[string]schedule.Rule{"depth-first": schedule.DepthFirst, "breadth-first": schedule.BreadthFirst} {
		t.Run(name, func(t *testing.T) {
			const m = 6
			n := &nursery{}
			retired := map[int]bool{}
			space := memory.NewGCSpace[*tensor](nil, func(*tensor) int64 { return 512 })
			r := newRunner(t, runner.Config[*tensor]{
				Stages: n.chain(), Spaces: runner.Spaces(space),
				Losses: []loss.Def{{Name: "loss", Objective: true}},
				Hooks: runner.Hooks{Microbatch: func(s *memory.Sample) {
					retired[s.Microbatch] = true
					if alive := n.alive(retired); alive > 0 {
						t.Errorf("microbatch %d: %d tensors of retired microbatches are reachable", s.Microbatch, alive)
					}
				}},
				Plan: runner.Plan{Rule: rule},
			})
			loader := &loader{nursery: n}
			gone := weak.Make(loader)
			result, err := r.Step(t.Context(), m, loader)
			require.NoError(t, err)
			loader = nil
			runtime.GC()
			require.Nil(t, gone.Value(), "the runner keeps nothing of a step that is over, the source included")
			require.Equal(t, 1, result.Books)
			require.Len(t, retired, m)
			require.Len(t, n.born, m*(1+1+2+2+2+1+1+1)) // the entry, the first output, outputs and saved tensors of the middle stage in both passes, and three gradients
			runtime.KeepAlive(r)

			// As a control, a closure that keeps its input keeps it reachable.
			var kept *tensor
			_, err = r.Step(t.Context(), 1, runner.Indexed(func(_ context.Context, e batchctx.Entry[*tensor]) error {
				kept = n.make(m)
				retired[m] = false
				e.Put("in", kept)
				return nil
			}))
			require.NoError(t, err)
			retired[m] = true
			require.Equal(t, 1, n.alive(retired))
			runtime.KeepAlive(kept)
		})
	}
}

// TestNothingIsReachableAfterAFailure makes each stage fail in each of its calls: the runner
// must also drop the arguments of the call (L8).
func TestNothingIsReachableAfterAFailure(t *testing.T) {
	cause := errors.New("no more")
	for fails := range 4 {
		for _, backward := range []bool{false, true} {
			n := &nursery{}
			chain := n.chain()
			chain[fails] = &failing{chain[fails], cause, backward}
			r := newRunner(t, runner.Config[*tensor]{
				Stages: chain,
				Spaces: runner.Spaces[*tensor](memory.NewGCSpace[*tensor](nil, func(*tensor) int64 { return 512 })),
				Losses: []loss.Def{{Name: "loss", Objective: true}},
				Plan:   runner.Plan{LookAhead: 1},
			})
			_, err := r.Step(t.Context(), 4, &loader{n})
			require.ErrorIs(t, err, cause)
			require.Zero(t, n.alive(map[int]bool{0: true, 1: true}), "stage %d, backward %v", fails, backward)
			runtime.KeepAlive(r)
		}
	}
}

// failing is a stage that fails after it has made all results.
type failing struct {
	stages.Stage[*tensor]
	cause    error
	backward bool
}

func (f *failing) Forward(ctx context.Context, mb batchctx.Microbatch[*tensor], in, out []*tensor) error {
	if err := f.Stage.Forward(ctx, mb, in, out); err != nil || f.backward {
		return err
	}
	return f.cause
}

func (f *failing) Backward(ctx context.Context, mb batchctx.Microbatch[*tensor], gradOut, gradIn []*tensor) error {
	if err := f.Stage.Backward(ctx, mb, gradOut, gradIn); err != nil || !f.backward {
		return err
	}
	return f.cause
}

// TestNothingIsReachableAfterAStepOfSeveralRanks passes the tensors of four stages between two
// ranks in both directions. After a step, whether it succeeds or fails in any stage, neither the
// runners nor the links between them keep a tensor.
func TestNothingIsReachableAfterAStepOfSeveralRanks(t *testing.T) {
	const m = 4
	cause := errors.New("no more")
	for fails := -1; fails < 8; fails++ {
		n := &nursery{}
		chain := n.chain()
		if fails >= 0 {
			chain[fails/2] = &failing{chain[fails/2], cause, fails%2 == 1}
		}
		size := func(*tensor) int64 { return 512 }
		cfg := runner.Config[*tensor]{
			Stages:   chain,
			Spaces:   runner.Spaces[*tensor](memory.NewGCSpace(nil, size), memory.NewGCSpace(nil, size)),
			Losses:   []loss.Def{{Name: "loss", Objective: true}},
			Plan:     runner.Plan{Placement: schedule.Wave(2, 4), Rule: schedule.BreadthFirst},
			Topology: runner.Topology[*tensor]{Capacity: 2, Copy: func(_, _ int, h *tensor) (*tensor, error) { return n.make(0), nil }},
		}
		g := newRunner(t, cfg)
		for range 2 {
			_, err := g.Step(t.Context(), m, runner.PerRank[*tensor](&loader{n}, &loader{n}))
			if fails >= 0 {
				require.ErrorIs(t, err, cause)
			} else {
				require.NoError(t, err)
			}
			require.Zero(t, n.alive(map[int]bool{0: true, 1: true, 2: true, 3: true}), "case %d", fails)
		}
		runtime.KeepAlive(g)
		require.NoError(t, g.Close())
	}
}

// TestNothingThatWasReceivedIsReachable covers two transfers that no drop of a plan releases. In
// the first, the second of three tensors of one transfer is missing, so the step ends after the
// third has been received. In the second, a tied gradient is received at the end of a step.
func TestNothingThatWasReceivedIsReachable(t *testing.T) {
	type mb = batchctx.Microbatch[*tensor]
	n := &nursery{}
	ports := []stages.Port{{Name: "x"}, {Name: "y"}, {Name: "z"}}
	var accumulators [2]*tensor
	use := func(i int, spec stages.Spec) *stages.Func[*tensor] {
		accumulators[i] = &tensor{}
		return &stages.Func[*tensor]{
			Declares: spec, Parameters: []batchctx.Use[*tensor]{{Name: "tied", Grad: accumulators[i], Tied: i > 0}},
			BackwardFunc: func(_ context.Context, m mb, _, gradIn []*tensor) error {
				for k := range gradIn {
					gradIn[k] = n.make(m.Index())
				}
				m.GradFirst(1)
				if len(spec.Losses) > 0 {
					m.LossSeed(1)
				}
				return nil
			},
		}
	}
	first, last := use(0, stages.Spec{Name: "first", Outputs: ports}), use(1, stages.Spec{Name: "last", Inputs: ports, Losses: []string{"loss"}})
	first.ForwardFunc = func(_ context.Context, m mb, _, out []*tensor) error {
		for k := range out {
			out[k] = n.make(m.Index())
		}
		return nil
	}
	last.ForwardFunc = func(_ context.Context, m mb, _, _ []*tensor) error { m.Loss(1, 1, 1); return nil }

	copies, missing := 0, -1
	size := func(*tensor) int64 { return 512 }
	cfg := runner.Config[*tensor]{
		Stages: []stages.Stage[*tensor]{first, last}, Schedule: "1f1b",
		Spaces:    runner.Spaces[*tensor](memory.NewGCSpace(nil, size), memory.NewGCSpace(nil, size)),
		Losses:    []loss.Def{{Name: "loss", Objective: true}},
		Gradients: silent{},
		Topology: runner.Topology[*tensor]{Copy: func(_, to int, _ *tensor) (*tensor, error) {
			if to == 1 {
				if copies++; copies == missing {
					return nil, nil
				}
			}
			return n.make(0), nil
		}},
	}
	g := newRunner(t, cfg)
	retired := map[int]bool{0: true, 1: true}
	nothing := runner.Indexed(func(context.Context, batchctx.Entry[*tensor]) error { return nil })
	_, err := g.Step(t.Context(), 2, nothing)
	require.NoError(t, err)
	require.Equal(t, 2*3+1, copies, "two microbatches of three tensors, and the total")
	require.Zero(t, n.alive(retired))

	copies, missing = 0, 2
	_, err = g.Step(t.Context(), 2, nothing)
	require.ErrorIs(t, err, batchctx.ErrMissing)
	require.Zero(t, n.alive(retired))
	runtime.KeepAlive(g)
}

// silent implements the operations on gradients without arithmetic.
type silent struct{}

func (silent) Zero(*tensor) error                  { return nil }
func (silent) Add(_, _ *tensor) error              { return nil }
func (silent) SumSquares(*tensor) (float64, error) { return 0, nil }

// TestALossCannotBeATensor compiles two ways to record a loss: numbers compile, and any value
// that could hold a graph does not (L3).
func TestALossCannotBeATensor(t *testing.T) {
	testkit.Slow(t)
	files := token.NewFileSet()
	config := types.Config{Importer: importer.ForCompiler(files, "source", nil)}
	compile := func(statement string) error {
		source := `package p
import batchctx "github.com/weir-ml/weir/context"
type Tensor struct { Data []float32; Grad func() }
func record(mb batchctx.Microbatch[*Tensor], loss *Tensor) { ` + statement + ` }`
		file, err := parser.ParseFile(files, "p.go", source, 0)
		require.NoError(t, err)
		_, err = config.Check("p", files, []*ast.File{file}, nil)
		return err
	}
	require.NoError(t, compile(`mb.Loss(1, float64(loss.Data[0]), 1)`))
	require.ErrorContains(t, compile(`mb.Loss(1, loss, 1)`), "cannot use loss")
	require.ErrorContains(t, compile(`mb.Loss(1, 1, loss)`), "cannot use loss")
	require.ErrorContains(t, compile(`var kept any = loss; mb.Loss(1, kept, 1)`), "cannot use kept")
}

func newRunner[T any](t *testing.T, cfg runner.Config[T]) *runner.Runner[T] {
	t.Helper()
	r, err := runner.New(cfg)
	require.NoError(t, err)
	return r
}
