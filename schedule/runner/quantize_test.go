package runner_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/lower"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/stages"
)

// copyScale marks a number as a copy of a weight: its exponent is larger by copyScale.
const copyScale = 600

// copyist is a stage that multiplies by copies of its weight: each step makes one copy for the
// forward and one for the backward.
type copyist struct {
	splitting
	made     [2]int // in all steps
	fails    error  // after the first copy is made
	keeps    bool   // it keeps a reference to the first copy
	space    memory.Space[number]
	backward func(mb view) // called in every backward; may be nil
}

func (s *copyist) Spec() stages.Spec {
	spec := s.splitting.Spec()
	spec.WeightCopies = []batchctx.WeightCopy{{Name: "w", At: batchctx.AtForward}, {Name: "w", At: batchctx.AtBackward}}
	return spec
}

func (s *copyist) QuantizeWeights(_ context.Context, call batchctx.Quantization[number]) error {
	if call.Pass() == batchctx.Eval && call.Wants(2) || !call.Wants(1) {
		return errors.New("the wanted copies are not the copies that the step needs")
	}
	for i := range s.made {
		if k := batchctx.Copy(i + 1); call.Wants(k) {
			h := num(math.Ldexp(s.weight, copyScale))
			call.Put(k, h)
			s.made[i]++
			if s.fails != nil {
				return s.fails
			}
			if s.keeps && i == 0 {
				call.Check(s.space.Retain(h))
			}
		}
	}
	return nil
}

// with returns the stage with the weight of a copy.
func (s *copyist) with(h number) *splitting {
	row := *s.times
	row.weight = math.Ldexp(*h, -copyScale)
	return &splitting{times: &row}
}

func (s *copyist) Forward(ctx context.Context, mb view, in, out []number) error {
	row := s.with(mb.WeightCopy(1))
	return row.Forward(ctx, mb, in, out)
}

func (s *copyist) Backward(ctx context.Context, mb view, gradOut, gradIn []number) error {
	row := s.with(mb.WeightCopy(2))
	if s.backward != nil {
		s.backward(mb)
	}
	return row.Backward(ctx, mb, gradOut, gradIn)
}

func (s *copyist) BackwardInput(ctx context.Context, mb view, gradOut, gradIn []number) error {
	row := s.with(mb.WeightCopy(2))
	return row.BackwardInput(ctx, mb, gradOut, gradIn)
}

// copied makes the stages of a group compute with copies.
func (r *ranksOf) copied(rows []*times, where lower.Quantizing) []*copyist {
	copies := make([]*copyist, len(rows))
	for i, row := range rows {
		copies[i] = &copyist{splitting: splitting{times: row}}
	}
	r.change = func(cfg *runner.Config[number]) {
		cfg.Plan.Quantizing = where
		for i, s := range copies {
			cfg.Stages[i], s.space = s, cfg.Spaces[r.placement.Rank[i]]
		}
	}
	return copies
}

// TestStagesComputeOnCopies trains with copies of weights, which each step makes once, on one
// rank and on several, under every kind of plan: the results equal those without copies, and nothing
// is left (L9, L14).
func TestStagesComputeOnCopies(t *testing.T) {
	for name, p := range map[string]*ranksOf{
		"depth-first": {placement: schedule.Looped(1, 4), rule: schedule.DepthFirst},
		"1f1b":        {placement: schedule.Looped(4, 4), rule: schedule.OneFOneB},
		"interleaved": {placement: schedule.Looped(2, 4), rule: schedule.Interleaved},
		"zb-v":        {placement: schedule.Wave(2, 4), rule: schedule.ZBV},
		"dualpipe":    {placement: schedule.Bidirectional(4), rule: schedule.DualPipe},
		"gpipe":       {placement: schedule.Looped(4, 4), rule: schedule.GPipe},
	} {
		for _, where := range []lower.Quantizing{lower.BeforeUse, lower.AtStart} {
			t.Run(name+" "+where.String(), func(t *testing.T) {
				p.capacity, p.stall = 4, time.Minute
				rows := rowsOf(p.placement)
				want := alone(t, p.placement.Depth(), 16)
				copies := p.copied(rows, where)
				g := p.group(t, rows)
				for range 2 {
					result := runStep(t, g, 16, p.sources())
					if name != "dualpipe" { // its backwards are not in ascending order
						require.Equal(t, want, numbersOf(t, result, rows))
					}
					p.released(t)
				}
				result := evaluate(t, g, 16, p.sources())
				require.Equal(t, want.losses, result.Losses)
				p.released(t)
				for _, s := range copies {
					require.Equal(t, [2]int{3, 2}, s.made)
				}
			})
		}
	}
}

// TestCopiesEndWithTheirLastUse checks the live bytes of copies when microbatches retire (L14).
func TestCopiesEndWithTheirLastUse(t *testing.T) {
	const m = 8
	r := chained(2)
	rows := rowsOf(r.placement)
	copies := r.copied(rows, lower.BeforeUse)
	change, live := r.change, [2][m]int64{}
	r.change = func(cfg *runner.Config[number]) {
		change(cfg)
		cfg.Hooks.Microbatch = func(s *memory.Sample) { live[s.Rank][s.Microbatch] = s.Classes[memory.FP8] }
	}
	g := r.group(t, rows)
	runStep(t, g, m, r.sources())
	require.Equal(t, [2][m]int64{{16, 16, 16, 16, 16, 16, 8, 0}, {16, 16, 16, 16, 16, 8, 0, 0}}, live,
		"those for the forward end with the last F; on rank 1 a microbatch retires later, with the wait for its gradient")

	for late := range m { // at every microbatch, with and without live copies
		copies[0].backward = func(mb view) {
			if mb.Index() == late {
				mb.WeightCopy(1)
			}
		}
		_, err := g.Step(t.Context(), m, r.sources())
		require.ErrorIs(t, err, batchctx.ErrMisplaced)
	}
}

// TestCopiesEndOnEveryWayOut fails in QUANTIZE, after the stage has put a copy, and in the middle
// of a step (L8).
func TestCopiesEndOnEveryWayOut(t *testing.T) {
	r := chained(2)
	rows := rowsOf(r.placement)
	copies := r.copied(rows, lower.BeforeUse)
	g := r.group(t, rows)
	fails := errors.New("planted")
	copies[1].fails = fails
	_, err := g.Step(t.Context(), 4, r.sources())
	require.ErrorIs(t, err, fails)
	require.ErrorContains(t, err, "rank 1 action 1QUANTIZE")
	r.released(t)

	copies[1].fails = nil
	copies[0].backward = func(view) { panic("planted") }
	require.Panics(t, func() { _, _ = g.Step(t.Context(), 4, r.sources()) })
	r.released(t)

	copies[0].backward, copies[0].keeps = nil, true
	_, err = g.Step(t.Context(), 4, r.sources())
	var leak *batchctx.LeakError
	require.True(t, errors.As(err, &leak), "%v", err)
	require.Contains(t, leak.What, "the copies of its weights were released with this action")
	require.Equal(t, "times0", leak.Name)

	copies[0].keeps = false
	runStep(t, g, 4, r.sources())
	r.released(t)
}
