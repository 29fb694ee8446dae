package fault_test

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/loss"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/stages"
)

// design is a model and a rule for it.
type design struct {
	name      string
	build     func(t testing.TB, m *model) []stage
	rule      schedule.Rule
	group     int
	lookAhead int
	// bare hides that the arena has a book and can reclaim, so that only owners release buffers.
	bare bool
	// capacity is the size of the arena in bytes.
	capacity int64
}

// whole makes a model in which every stage trains, with a tied parameter, a stage that recomputes,
// and two stages in sequence.
func whole(t testing.TB, m *model) []stage {
	first, mixA, mixB, mixC := m.embed("embed"), m.mix("mix a", "a"), m.mix("mix b", "b"), m.mix("mix c", "a")
	sequence, err := stages.Sequential("b and c", mixB, stages.Recompute(mixC))
	require.NoError(t, err)
	return []stage{first, stages.Recompute(mixA), sequence, m.head()}
}

// prefix makes a model with a frozen stage before all stages that train, and one between them.
func prefix(_ testing.TB, m *model) []stage {
	return []stage{stages.Freeze(m.embed("embed")), m.mix("mix a", "a"), stages.Freeze(m.mix("mix b", "b")), m.head()}
}

// splitting is a depth-first rule that computes the weight gradients of stages 1 and 2 after all
// input gradients.
func splitting(p schedule.Params) (*schedule.Plan, error) {
	plan, err := schedule.DepthFirst(p)
	if err != nil || p.Mode != schedule.Training {
		return plan, err
	}
	var body []schedule.Action
	for s := range 4 {
		body = append(body, schedule.NewAction(schedule.F, s, 0))
	}
	for _, s := range []struct {
		kind  schedule.Kind
		stage int
	}{{schedule.B, 3}, {schedule.I, 2}, {schedule.I, 1}, {schedule.B, 0}, {schedule.W, 1}, {schedule.W, 2}} {
		body = append(body, schedule.NewAction(s.kind, s.stage, 0))
	}
	plan.Name = "depth-first split"
	plan.Programs = [][]schedule.Segment{{{Body: body, Repeat: p.Microbatches, Stride: 1}}}
	return plan, nil
}

var designs = []design{
	{"depth-first", whole, schedule.DepthFirst, 0, 0, false, 1 << 20},
	{"groups of two", whole, schedule.DepthFirst, 2, 1, false, 1 << 20},
	{"breadth-first", whole, schedule.BreadthFirst, 0, 2, false, 1 << 20},
	{"split backward", whole, splitting, 0, 0, false, 1 << 20},
	{"frozen depth-first", prefix, schedule.DepthFirst, 0, 1, false, 1 << 20},
	{"frozen breadth-first", prefix, schedule.BreadthFirst, 0, 0, false, 1 << 20},
	{"bare depth-first", whole, schedule.DepthFirst, 0, 1, true, 1 << 20},
	{"bare split backward", whole, splitting, 0, 0, true, 1 << 20},
}

// rig is a runner over a model, with all events.
type rig struct {
	t      testing.TB
	events events
	pool   *pool
	model  *model
	runner *runner.Runner[tensor]
	books  int     // number of books that are audited
	sunk   float64 // sum of the outputs that the sink has read
	keep   func(out []tensor)
}

func newRig(t testing.TB, d design) *rig {
	r := &rig{t: t, books: 2}
	r.events.plan(-1, returns, nil)
	r.pool = newPool(t, &r.events, d.capacity)
	r.model = &model{pool: r.pool}
	var space memory.Space[tensor] = r.pool
	if d.bare {
		space, r.books = struct{ memory.Space[tensor] }{r.pool}, 1
	}
	var err error
	r.runner, err = runner.New(runner.Config[tensor]{
		Stages: d.build(t, r.model), Spaces: runner.Spaces(space),
		Losses:    []loss.Def{{Name: "squares", Reduction: loss.Mean, Objective: true}},
		Gradients: gradients{r.pool},
		Outputs:   r.sink,
		Seed:      7,
		Hooks: runner.Hooks{
			Action: func(_ int, a schedule.Action) {
				r.events.action = a
				_ = r.events.happen(atAction)
			},
			Microbatch: func(*memory.Sample) { _ = r.events.happen(atRetire) },
		},
		Plan: runner.Plan{Rule: d.rule, Group: d.group, LookAhead: d.lookAhead},
	})
	require.NoError(t, err)
	return r
}

// sink reads outputs and releases them, or passes them to keep if that is set.
func (r *rig) sink(_ int, out []tensor) error {
	if r.keep != nil {
		r.keep(out)
		return nil
	}
	for _, h := range out {
		y, err := r.pool.view(h)
		if err != nil {
			return err
		}
		for _, v := range y {
			r.sunk += float64(v)
		}
		if _, err := r.pool.Release(h); err != nil {
			return err
		}
	}
	return r.events.happen(atOutputs)
}

// gradients implements the runner's operations on gradients at the end of a step.
type gradients struct{ pool *pool }

func (g gradients) Zero(h tensor) error {
	x, err := g.pool.view(h)
	clear(x)
	return err
}

func (g gradients) Add(dst, src tensor) error {
	if err := g.pool.events.end(); err != nil {
		return err
	}
	d, err := g.pool.view(dst)
	if err != nil {
		return err
	}
	s, err := g.pool.view(src)
	for i, v := range s {
		d[i] += v
	}
	return err
}

func (g gradients) SumSquares(h tensor) (float64, error) {
	if err := g.pool.events.end(); err != nil {
		return 0, err
	}
	x, err := g.pool.view(h)
	sum := 0.0
	for _, v := range x {
		sum += float64(v) * float64(v)
	}
	return sum, err
}

// fill makes an entry.
type fill = func(context.Context, batchctx.Entry[tensor]) error

// source provides entries of uneven length, the same in every step.
func (r *rig) source() fill {
	return func(_ context.Context, entry batchctx.Entry[tensor]) error {
		if err := r.events.happen(atSource); err != nil {
			return err
		}
		if err := r.fill(entry); err != nil {
			return err
		}
		return r.events.happen(atPut)
	}
}

func (r *rig) fill(entry batchctx.Entry[tensor]) error {
	k := entry.Index()
	for part, name := range parts {
		h, x, err := r.pool.alloc(memory.Entry, 2+3*(k%3))
		if err != nil {
			return err
		}
		for i := range x {
			switch part {
			case 0:
				x[i] = float32(1+(5*k+3*i)%7) / 8
			case 1:
				x[i] = float32((k + i + 1) % 3)
			case 2:
				x[i] = float32((k+2*i)%5) / 4
			}
		}
		entry.Put(name, h)
	}
	return nil
}

// outcome contains all numbers of a step.
type outcome struct {
	result runner.Result
	grads  map[string][][]float32
	sunk   float64
}

// step runs a step, or an evaluation.
func (r *rig) step(ctx context.Context, mode schedule.Mode, m int) (*runner.Result, error) {
	return r.run(ctx, mode, m, r.source())
}

// run is step with another source.
func (r *rig) run(ctx context.Context, mode schedule.Mode, m int, next fill) (*runner.Result, error) {
	r.sunk = 0
	if mode == schedule.ForwardOnly {
		return r.runner.Evaluate(ctx, m, once(next))
	}
	return r.runner.Step(ctx, m, once(next))
}

// clean runs a step without a fault.
func (r *rig) clean(mode schedule.Mode, m int) outcome {
	r.t.Helper()
	r.events.plan(-1, returns, nil)
	result, err := r.step(context.Background(), mode, m)
	require.NoError(r.t, err)
	return r.readAndUpdate(mode, result)
}

// readAndUpdate reads the numbers of a step, and updates the weights, so that no two steps are equal.
func (r *rig) readAndUpdate(mode schedule.Mode, result *runner.Result) outcome {
	r.t.Helper()
	require.Zero(r.t, result.Excess)
	require.Zero(r.t, result.Growth.Bytes)
	require.Equal(r.t, r.books, result.Books)
	o := outcome{grads: map[string][][]float32{}, sunk: r.sunk}
	factor := 0.0
	if mode == schedule.Training {
		log := r.events.log // events of Update are not events of the step
		var err error
		factor, err = factorOf(result)
		require.NoError(r.t, err)
		r.events.log = log
	}
	o.result = *result
	o.result.Reserved = 0 // a peak, which the fault may have raised
	o.result.Ranks, o.result.Makespan, o.result.Span = nil, 0, 0
	for _, w := range r.model.weights {
		for _, h := range w.grads {
			g, err := r.pool.view(h)
			require.NoError(r.t, err)
			o.grads[w.name] = append(o.grads[w.name], slices.Clone(g))
			for i := range w.values {
				w.values[i] -= 0.01 * float32(factor) * g[i]
			}
		}
	}
	return o
}

// factorOf takes the factor of a step.
func factorOf(r *runner.Result) (factor float64, err error) {
	err = r.Update(func(f float64) error { factor = f; return nil })
	return factor, err
}

// once is a source of one rank that is called once for each entry. With -tags invariants the runner
// calls a source of runner.Indexed twice, to check it against its contract.
type once fill

func (f once) Next(ctx context.Context, e entry) error { return f(ctx, e) }
