package runner_test

import (
	"context"
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/loss"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/stages"
	"github.com/weir-ml/weir/transport"
	"github.com/weir-ml/weir/transport/local"
)

// TestRanksComeToTheNumbersOfOne runs every schedule on one to four ranks: the results are
// bit-equal to one rank's, and gradients too if the schedule's backwards are in ascending order
// (L9).
func TestRanksComeToTheNumbersOfOne(t *testing.T) {
	for _, s := range schedule.Schedules() {
		t.Run(s.Name, func(t *testing.T) {
			for ranks := 1; ranks <= 4; ranks++ {
				depth := ranks * s.PerRank
				if depth == 1 {
					depth = 2
				}
				placement, err := s.Place(ranks, depth)
				if err != nil { // dualpipe has as many stages as ranks, and there are at least two stages here
					require.ErrorIs(t, err, schedule.ErrParams)
					continue
				}
				for _, capacity := range []int{0, 1, schedule.Unlimited} {
					for _, m := range []int{1, 3, 8} {
						r := &ranksOf{placement: placement, rule: s.Rule, capacity: capacity, split: s.Split}
						rows := rowsOf(placement)
						result, err := r.group(t, rows).Step(t.Context(), m, r.sources())
						require.NoError(t, err, "%d ranks, capacity %d, M = %d", ranks, capacity, m)
						got, want := numbersOf(t, result, rows), alone(t, depth, m)
						if !s.AscendingBackward {
							for name, grad := range got.grads {
								require.InEpsilon(t, want.grads[name], grad, 1e-12)
							}
							require.InEpsilon(t, want.norm, got.norm, 1e-12)
							got.grads, got.norm = want.grads, want.norm
						}
						require.Equal(t, want, got, "%d ranks, capacity %d, M = %d", ranks, capacity, m)
						require.Len(t, result.Ranks, ranks)
						r.released(t)
					}
				}
			}
		})
	}
}

// TestEveryRankReturnsTheSameResult steps the runners of three ranks separately, over links, with
// stages.Remote for the stages of other ranks.
func TestEveryRankReturnsTheSameResult(t *testing.T) {
	const ranks, m = 3, 5
	placement := schedule.Looped(ranks, ranks)
	rows := rowsOf(placement)
	links := newLinks(t, ranks, 1, 0)
	results := make([]*runner.Result, ranks)
	errs := make([]error, ranks)
	var all sync.WaitGroup
	for rank := range ranks {
		cfg := only(rows, rank, links)
		for s, row := range rows {
			if s != rank {
				params := row.Params()
				params[0].Grad = nil
				cfg.Stages[s] = stages.Remote(row.Spec(), false, params)
			}
		}
		r := newRunner(t, cfg)
		all.Go(func() { results[rank], errs[rank] = r.Step(t.Context(), m, &counted{}) })
	}
	all.Wait()
	require.Equal(t, make([]error, ranks), errs)
	numbers := numbersOf(t, results[0], rows) // updates
	require.Equal(t, alone(t, ranks, m), numbers)
	for _, result := range results[1:] {
		require.Equal(t, numbers, numbersOf(t, result, rows))
		require.Equal(t, results[0], result)
	}
}

// The output of an evaluation has the number of its entry, even if two copies of the model alternate.
func TestEvaluateOnSeveralRanks(t *testing.T) {
	for _, r := range []*ranksOf{chained(3), {placement: schedule.Bidirectional(3), rule: schedule.DualPipe, capacity: 1, stall: time.Minute}} {
		rows := rowsOf(r.placement)
		for _, row := range rows {
			row.last = false // it returns a number here
		}
		var mu sync.Mutex
		got := map[int]float64{}
		r.change = func(cfg *runner.Config[number]) {
			cfg.Losses = nil
			space := r.spaces[r.placement.Rank[2]]
			cfg.Outputs = func(m int, out []number) error {
				mu.Lock()
				defer mu.Unlock()
				got[m] = *out[0]
				if r.placement.Copies == 2 {
					space = r.spaces[r.placement.Rank[2+3*(m%2)]]
				}
				_, err := space.Release(out[0])
				return err
			}
		}
		g := r.group(t, rows)
		result := evaluate(t, g, 5, r.sources())
		_, err := factorOf(result)
		require.ErrorIs(t, err, runner.ErrNoUpdate)
		want := map[int]float64{}
		for m := range 5 {
			x := float64(m + 1)
			for _, row := range rows[:3] {
				x *= row.weight
			}
			want[m] = x
		}
		require.Equal(t, want, got)
		require.Zero(t, g.NextStep())
		for _, row := range rows {
			require.True(t, math.IsNaN(*row.grad), "no gradient is touched")
		}
		r.released(t)
	}
}

// TestTiedParametersAcrossRanks has uses of one parameter on three ranks, two of them on one
// rank: every use receives the total, and the norm counts it once (L9).
func TestTiedParametersAcrossRanks(t *testing.T) {
	for _, copies := range []bool{false, true} {
		tied := func(p schedule.Placement) []*times {
			rows := rowsOf(p)
			for _, s := range []int{2, 3, 5} {
				rows[s].param, rows[s].tied = "w0", true
			}
			return rows
		}
		one := tied(schedule.Looped(1, 6))
		result, err := newRunner(t, config(one)).Step(t.Context(), 4, &counted{})
		require.NoError(t, err)
		total, norm := *one[0].grad, result.GradNorm

		r := &ranksOf{placement: schedule.Looped(3, 6), rule: schedule.BreadthFirst, capacity: 0}
		if copies {
			r.change = func(cfg *runner.Config[number]) { cfg.Gradients = copying{} }
		}
		rows := tied(r.placement)
		g := r.group(t, rows)
		result = runStep(t, g, 4, r.sources())
		require.Equal(t, norm, result.GradNorm)
		for _, s := range []int{0, 2, 3, 5} {
			require.Equal(t, total, *rows[s].grad, "stage %d", s)
		}
		r.released(t)
	}
}

// copying is a calculator with Copy.
type copying struct{ calculator }

func (copying) Copy(dst, src number) error { *dst = *src; return nil }

// TestHooksAndRecordsNameTheRank checks the hooks and records of each rank.
func TestHooksAndRecordsNameTheRank(t *testing.T) {
	r := chained(3)
	var mu sync.Mutex
	actions, samples := map[int]int{}, map[int]int{}
	r.change = func(cfg *runner.Config[number]) {
		cfg.Hooks.Action = func(rank int, a schedule.Action) {
			mu.Lock()
			defer mu.Unlock()
			if a.Stage() != rank {
				t.Errorf("rank %d gets %v", rank, a)
			}
			actions[rank]++
		}
		cfg.Hooks.Microbatch = func(s *memory.Sample) {
			mu.Lock()
			defer mu.Unlock()
			samples[s.Rank]++
		}
	}
	g := r.group(t, rowsOf(r.placement))
	result := runStep(t, g, 5, r.sources())
	for rank := range 3 {
		require.EqualValues(t, actions[rank], result.Ranks[rank].Actions)
		require.Equal(t, 5, samples[rank])
		require.Equal(t, rank, g.Samples(rank).At(0).Rank)
	}
	require.Equal(t, []int{2*5 + 3*5, 2*5 + 6*5, 2*5 + 3*5}, []int{actions[0], actions[1], actions[2]}, "two computations; a send, its wait and a receive on each side")
	require.Equal(t, 25+40+25, result.Actions)
}

// TestPortsWithoutAGradient sends three tensors, but only the gradient of the second one back.
func TestPortsWithoutAGradient(t *testing.T) {
	ports := []stages.Port{{Name: "mask", NoGrad: true}, {Name: "x"}, {Name: "index", NoGrad: true}}
	bottom := &stages.Func[number]{
		Declares: stages.Spec{Name: "bottom", Reads: []stages.Read{{Part: "x"}}, Outputs: ports},
		ForwardFunc: func(_ context.Context, mb view, _, out []number) error {
			x := mb.Part(1)
			out[0], out[1], out[2] = num(1), num(*x), num(2)
			return nil
		},
		BackwardFunc: func(_ context.Context, _ view, gradOut, _ []number) error {
			if gradOut[0] != nil || gradOut[2] != nil || *gradOut[1] != 7 {
				return fmt.Errorf("gradients %v", gradOut)
			}
			return nil
		},
	}
	top := &stages.Func[number]{
		Declares: stages.Spec{Name: "top", Inputs: ports, Losses: []string{"loss"}},
		ForwardFunc: func(_ context.Context, mb view, in, _ []number) error {
			if *in[0] != 1 || *in[2] != 2 {
				return fmt.Errorf("inputs %v and %v", *in[0], *in[2])
			}
			mb.Loss(1, *in[1], 1)
			return nil
		},
		BackwardFunc: func(_ context.Context, _ view, _, gradIn []number) error {
			gradIn[1] = num(7)
			return nil
		},
	}
	r := chained(2)
	r.change = func(cfg *runner.Config[number]) { cfg.Stages = []stages.Stage[number]{bottom, top} }
	_, err := r.group(t, nil).Step(t.Context(), 4, r.sources())
	require.NoError(t, err)
	r.released(t)
}

func TestSeveralRanksSayWhatIsWrong(t *testing.T) {
	good := func() runner.Config[number] {
		cfg := config(rowsOf(schedule.Looped(2, 2)))
		cfg.Spaces = append(cfg.Spaces, memory.NewGCSpace[number](nil, nil))
		cfg.Schedule, cfg.Topology.Copy = "1f1b", copyNumber
		return cfg
	}
	type changing = func(c *runner.Config[number])
	for want, change := range map[string]changing{
		"there are no Spaces":                     func(c *runner.Config[number]) { c.Spaces = nil },
		"links without Copy":                      func(c *runner.Config[number]) { c.Topology.Copy = nil },
		"a link of capacity -2":                   func(c *runner.Config[number]) { c.Topology.Capacity = -2 },
		"the space of rank 1 is nil":              func(c *runner.Config[number]) { c.Spaces[1] = nil },
		"ranks 0 and 1 have the same":             func(c *runner.Config[number]) { c.Spaces[1] = c.Spaces[0] },
		"a placement on 3 ranks, but there are 2": func(c *runner.Config[number]) { c.Plan.Placement = schedule.Looped(3, 2) },
		"2 stages and a placement of 3":           func(c *runner.Config[number]) { c.Plan.Placement = schedule.Looped(2, 3) },
		"stage 1 is on rank 2 of 2":               func(c *runner.Config[number]) { c.Plan.Placement = schedule.Placement{Ranks: 2, Rank: []int{0, 2}} },
		"2 of 3 ranks are in this process":        func(c *runner.Config[number]) { c.Topology.Ranks = 3 },
		"Spaces are of ranks 1 to 2":              func(c *runner.Config[number]) { c.Topology.First = 1 },
		"Topology.Transport replaces Copy": func(c *runner.Config[number]) {
			c.Topology.Transport = func(int) transport.Transport[number] { return nil }
		},
		"returned nil for rank 0": func(c *runner.Config[number]) {
			c.Topology = runner.Topology[number]{Transport: func(int) transport.Transport[number] { return (*local.Endpoint[number])(nil) }}
			c.Spaces = c.Spaces[:1]
		},
		"Topology.Transport returned nil for rank 0": func(c *runner.Config[number]) {
			c.Topology = runner.Topology[number]{Transport: func(int) transport.Transport[number] { return nil }}
		},
		"did you mean 1f1b?":                    func(c *runner.Config[number]) { c.Schedule = "1f1" },
		"Plan.Rule is set":                      func(c *runner.Config[number]) { c.Plan.Rule = schedule.GPipe },
		"zb-v does not run 2 stages on 2 ranks": func(c *runner.Config[number]) { c.Schedule = "zb-v" },
		"a placement of 2 copies in 3": func(c *runner.Config[number]) {
			c.Plan.Placement = schedule.Placement{Ranks: 2, Rank: make([]int, 3), Copies: 2}
		},
		"list the stages of 2 copies of the model": func(c *runner.Config[number]) { c.Schedule = "dualpipe" },
		"other parameters, or freezes ot": func(c *runner.Config[number]) {
			rows := rowsOf(schedule.Bidirectional(2))
			rows[3].param = "other"
			c.Schedule, c.Stages = "dualpipe", config(rows).Stages
		},
	} {
		cfg := good()
		change(&cfg)
		_, err := runner.New(cfg)
		require.ErrorContains(t, err, want)
	}

	cfg := good()
	cfg.Schedule, cfg.Stages = "dualpipe", config(rowsOf(schedule.Bidirectional(2))).Stages
	newRunner(t, cfg)

	g := newRunner(t, good())
	one := &counted{}
	for want, source := range map[string]runner.Source[number]{
		"the source is nil": nil,
		"2 ranks and a source for one (*runner_test.counted): make it with runner.Stream or runner.Indexed": one,
		"PerRank has 1 sources for 2 ranks": runner.PerRank[number](one),
		"source 1 of PerRank is nil":        runner.PerRank[number](one, nil),
		"sources 0 and 1 of PerRank are the same (*runner_test.counted): to share a source, make it with runner.Stream": runner.PerRank[number](one, one),
	} {
		_, err := g.Step(t.Context(), 1, source)
		require.ErrorContains(t, err, want)
	}
	_, err := g.Step(t.Context(), 0, runner.PerRank[number](&counted{}, &counted{}))
	require.ErrorContains(t, err, "0 microbatches")
	require.NoError(t, g.Close())
	_, err = g.Step(t.Context(), 1, runner.PerRank[number](&counted{}, &counted{}))
	require.ErrorIs(t, err, runner.ErrClosed)
}

// TestDecoratedStagesOnSeveralRanks freezes and recomputes stages, and pulls entries ahead: the
// numbers equal one rank's.
func TestDecoratedStagesOnSeveralRanks(t *testing.T) {
	const depth, m = 4, 5
	for name, decorate := range map[string]func(s int, stage stages.Stage[number]) stages.Stage[number]{
		"recompute": func(s int, stage stages.Stage[number]) stages.Stage[number] { return stages.Recompute(stage) },
		"frozen prefix": func(s int, stage stages.Stage[number]) stages.Stage[number] {
			if s < 2 {
				return stages.Freeze(stage)
			}
			return stage
		},
		"frozen between": func(s int, stage stages.Stage[number]) stages.Stage[number] {
			if s == 1 || s == 2 {
				return stages.Freeze(stage)
			}
			return stage
		},
		"some do not split": func(s int, stage stages.Stage[number]) stages.Stage[number] {
			if s%2 == 0 {
				return stage.(*splitting).times
			}
			return stage
		},
	} {
		build := func(p schedule.Placement, ahead int) (*ranksOf, []*times) {
			rows := rowsOf(p)
			r := &ranksOf{placement: p, split: true, capacity: 1}
			r.change = func(cfg *runner.Config[number]) {
				cfg.Plan.LookAhead = ahead
				for s := range cfg.Stages {
					cfg.Stages[s] = decorate(s, cfg.Stages[s])
				}
			}
			return r, rows
		}
		one, rows := build(schedule.Looped(1, depth), 0)
		one.rule = schedule.DepthFirst
		result, err := one.group(t, rows).Step(t.Context(), m, one.sources())
		require.NoError(t, err)
		want := result.GradNorm
		for _, plan := range []struct {
			rule      schedule.Rule
			placement schedule.Placement
		}{
			{schedule.OneFOneB, schedule.Looped(4, 4)}, {schedule.ZBH1, schedule.Looped(4, 4)},
			{schedule.ZBV, schedule.Wave(2, 4)}, {schedule.Interleaved, schedule.Looped(2, 4)},
		} {
			r, others := build(plan.placement, 2)
			r.rule = plan.rule
			g := r.group(t, others)
			result := runStep(t, g, m, r.sources())
			require.Equal(t, want, result.GradNorm, name)
			for s := range rows {
				require.Equal(t, math.Float64bits(*rows[s].grad), math.Float64bits(*others[s].grad), "%s: stage %d", name, s)
			}
			evaluate(t, g, m, r.sources())
			r.released(t)
		}
	}
}

// labelled is the last stage, with a label that it reads in its forward and in its backward.
type labelled struct{ *times }

func (l labelled) Spec() stages.Spec {
	spec := l.times.Spec()
	spec.Reads = []stages.Read{{Part: "label", At: batchctx.AtForward | batchctx.AtBackward}}
	return spec
}

func (l labelled) check(mb view) error {
	label := mb.Part(1)
	if *label != float64(mb.Index()) {
		return fmt.Errorf("microbatch %d has label %v", mb.Index(), *label)
	}
	return nil
}

func (l labelled) Forward(ctx context.Context, mb view, in, out []number) error {
	if err := l.check(mb); err != nil {
		return err
	}
	return l.times.Forward(ctx, mb, in, out)
}

func (l labelled) Backward(ctx context.Context, mb view, gradOut, gradIn []number) error {
	if err := l.check(mb); err != nil {
		return err
	}
	return l.times.Backward(ctx, mb, gradOut, gradIn)
}

// TestARankHoldsOnlyThePartsThatItReads has labels for the last stage: each rank pulls every
// microbatch, but wants only its own parts (L1).
func TestARankHoldsOnlyThePartsThatItReads(t *testing.T) {
	const m = 9
	for _, plan := range []struct {
		rule      schedule.Rule
		placement schedule.Placement
	}{
		{schedule.OneFOneB, schedule.Looped(3, 3)}, {schedule.Interleaved, schedule.Looped(2, 4)},
		{schedule.BreadthFirst, schedule.Looped(3, 6)}, {schedule.DualPipeV, schedule.Wave(2, 4)},
		{schedule.DualPipe, schedule.Bidirectional(2)}, {schedule.DualPipe, schedule.Bidirectional(4)},
	} {
		for _, ahead := range []int{0, 3} {
			r := &ranksOf{placement: plan.placement, rule: plan.rule, capacity: 1}
			rows := rowsOf(plan.placement)
			wants := make([][2]int, plan.placement.Ranks) // by rank: how often each part is wanted
			r.change = func(cfg *runner.Config[number]) {
				cfg.Plan.LookAhead = ahead
				for s, row := range rows {
					if row.last {
						cfg.Stages[s] = labelled{row}
					}
				}
			}
			sources := make([]runner.Source[number], plan.placement.Ranks)
			for rank := range sources {
				asked := 0
				sources[rank] = runner.Indexed(func(_ context.Context, e batchctx.Entry[number]) error {
					if e.Index() != asked {
						return fmt.Errorf("asked for microbatch %d after %d", e.Index(), asked)
					}
					asked++
					for part, value := range []float64{float64(asked), float64(e.Index())} {
						name := []string{"x", "label"}[part]
						if e.Wants(name) {
							wants[rank][part]++
						}
						e.Put(name, num(value))
					}
					return nil
				})
			}
			result, err := r.group(t, rows).Step(t.Context(), m, runner.PerRank(sources...))
			require.NoError(t, err)
			require.InEpsilon(t, alone(t, plan.placement.Depth(), m).norm, result.GradNorm, 1e-12)
			want := make([][2]int, plan.placement.Ranks)
			for s, row := range rows {
				n := m
				if plan.placement.Copies == 2 { // the first copy has one more if the number is odd
					n = m / 2
					if s < plan.placement.Depth() {
						n++
					}
				}
				if row.first {
					want[plan.placement.Rank[s]][0] += n
				}
				if row.last {
					want[plan.placement.Rank[s]][1] += n
				}
			}
			require.Equal(t, want, wants)
			r.released(t)
		}
	}
}

// TestTwoBooksOnSeveralRanks runs stages that compute nothing over one arena per rank: sent,
// received and tied tensors are in both books of their rank until they are released (L6).
func TestTwoBooksOnSeveralRanks(t *testing.T) {
	type handle = memory.Handle
	const m = 6
	placement := schedule.Looped(2, 4)
	arenas := make([]*memory.Arena, 2)
	for rank := range arenas {
		var err error
		arenas[rank], err = memory.NewArena(memory.ArenaConfig{Capacity: 1 << 20})
		require.NoError(t, err)
		defer arenas[rank].Close()
	}
	var chain []stages.Stage[handle]
	for s, rank := range placement.Rank {
		arena := arenas[rank]
		grad, err := arena.Alloc(memory.Resident, 4)
		require.NoError(t, err)
		stage := &stages.Func[handle]{
			Declares:   stages.Spec{Name: fmt.Sprintf("stage%d", s), Inputs: wire, Outputs: wire},
			Parameters: []batchctx.Use[handle]{{Name: "tied", Grad: grad, Tied: true}},
			ForwardFunc: func(_ context.Context, mb batchctx.Microbatch[handle], _, out []handle) (err error) {
				for i := range out {
					out[i], err = arena.Alloc(memory.Activation, 100)
				}
				if len(out) == 0 {
					mb.Loss(1, 1, 1)
				}
				return err
			},
			BackwardFunc: func(_ context.Context, mb batchctx.Microbatch[handle], _, gradIn []handle) (err error) {
				mb.GradFirst(1)
				if s == 3 {
					mb.LossSeed(1)
				}
				for i := range gradIn {
					gradIn[i], err = arena.Alloc(memory.ActGrad, 100)
				}
				return err
			},
		}
		if s == 0 {
			stage.Declares.Inputs = nil
		}
		if s == 3 {
			stage.Declares.Outputs, stage.Declares.Losses = nil, []string{"loss"}
		}
		chain = append(chain, stage)
	}
	g := newRunner(t, runner.Config[handle]{
		Stages: chain, Spaces: runner.Spaces[handle](arenas[0], arenas[1]), Schedule: "interleaved", Gradients: idle{},
		Losses: []loss.Def{{Name: "loss", Objective: true}},
		Topology: runner.Topology[handle]{Capacity: 1, Copy: func(_, to int, _ handle) (handle, error) {
			return arenas[to].Alloc(memory.Transfer, 100)
		}},
	})
	nothing := runner.Indexed(func(context.Context, batchctx.Entry[handle]) error { return nil })
	for range 2 {
		result := runStep(t, g, m, nothing)
		require.Equal(t, 2, result.Books)
		require.Zero(t, result.Excess)
		require.Zero(t, result.Growth.Bytes)
		for rank := range arenas {
			require.EqualValues(t, 8, arenas[rank].Live(), "two accumulators")
			require.EqualValues(t, 8, result.Ranks[rank].Live)
			require.Greater(t, result.Ranks[rank].Peak, int64(200))
		}
	}
}

// idle implements Gradients without arithmetic.
type idle struct{}

func (idle) Zero(memory.Handle) error                  { return nil }
func (idle) Add(_, _ memory.Handle) error              { return nil }
func (idle) SumSquares(memory.Handle) (float64, error) { return 0, nil }
