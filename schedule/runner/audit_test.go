package runner_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/internal/engine/frames"
	"github.com/weir-ml/weir/internal/engine/invariants"
	"github.com/weir-ml/weir/internal/testing/testkit"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/transport"
)

// flipBit flips a bit of a number.
func flipBit(x *float32, bit int) { *x = math.Float32frombits(math.Float32bits(*x) ^ 1<<bit) }

// TestAuditFindsFlips flips a bit of a stage's result, in one of the computations of the microbatch that an audited
// step repeats, and requires that the error names the rank, the stage and the microbatch.
func TestAuditFindsFlips(t *testing.T) {
	testkit.Slow(t)
	const stage, author = 2, 1 // the stage is on rank 1 of 2
	for _, what := range []struct {
		name string
		kind schedule.Kind
	}{{"output", schedule.F}, {"saved", schedule.B}, {"input", schedule.B}, {"gradient", schedule.B}} {
		for _, at := range []struct {
			replicas, replica, call int // the call of the replica for the microbatch; -1 for all calls
			names                   int // the replica that the error names
			text                    string
		}{
			{1, 0, 0, 0, "when it was computed again"},
			{1, 0, 1, 0, "when it was computed again"},
			{2, author, 0, author, "when it was computed again"},
			{2, author, 1, author, "when it was computed again"},
			{2, 0, 0, 0, "one of the two is wrong"},
			{2, author, -1, 0, "one of the two is wrong"},
			{3, 0, 0, 0, "and most others"},
			{3, 2, 0, 2, "and most others"},
			{3, author, -1, author, "and most others"},
		} {
			r := &replicated{replicas: at.replicas, ranks: 2, change: func(cfg *runner.Config[buffer]) { cfg.Audit, cfg.FirstStep = 2, 3 }}
			run := r.build(t)
			index, calls := author%at.replicas, 0
			r.stages[at.replica*4+stage].flip = func(now string, microbatch int, x []float32) {
				if now != what.name || microbatch != index || now == "gradient" && len(x) != width {
					return
				}
				if calls++; at.call < 0 || calls-1 == at.call {
					flipBit(&x[len(x)/3], 2)
				}
			}
			_, err := run.Step(t.Context(), 2*at.replicas, r.source())
			name := fmt.Sprintf("%s: %+v: %v", what.name, at, err)
			require.ErrorIs(t, err, runner.ErrCorrupt, name)
			require.ErrorContains(t, err, at.text, name)
			e, ok := errors.AsType[*transport.StepError](err)
			require.True(t, ok, name)
			require.Equal(t, []any{at.names*2 + stage%2, stage, index, what.kind}, []any{e.Rank, e.Action.Stage(), e.Microbatch, e.Action.Kind()}, name)
			r.stages[at.replica*4+stage].flip = nil
			result, err := run.Step(t.Context(), 2*at.replicas, r.source()) // the step can be repeated
			require.NoError(t, err)
			require.Equal(t, index, result.Audited)
		}
	}
}

// TestAuditFindsWeights flips a bit of a weight between two steps, and during a step.
func TestAuditFindsWeights(t *testing.T) {
	for _, replicas := range []int{1, 2, 3} {
		for _, during := range []bool{false, true} {
			r := &replicated{replicas: replicas, ranks: 2}
			armed := false
			r.change = func(cfg *runner.Config[buffer]) {
				cfg.Audit = 1
				cfg.Hooks.Action = func(rank int, action schedule.Action) {
					if during && rank == 2*replicas-1 && armed && action.Kind() == schedule.B && action.Microbatch() == 1 {
						armed = false
						flipBit(&r.stages[len(r.stages)-1].floats(r.stages[len(r.stages)-1].params[0].Weight)[77], 5)
					}
				}
			}
			run := r.build(t)
			result := runStep(t, run, 2*replicas, r.source())
			require.NoError(t, result.Update(r.update))
			if armed = true; !during {
				flipBit(&r.stages[len(r.stages)-1].floats(r.stages[len(r.stages)-1].params[0].Weight)[77], 5)
			}
			_, err := run.Step(t.Context(), 2*replicas, r.source())
			e, _ := errors.AsType[*transport.StepError](err)
			switch {
			case during && invariants.Enabled:
				require.ErrorIs(t, err, frames.ErrChanged)
			case during:
				require.ErrorIs(t, err, runner.ErrCorrupt)
				require.ErrorContains(t, err, "weights of stage 3 (affine 3) have changed during the step")
				require.Equal(t, 2*replicas-1, e.Rank)
			case replicas == 1:
				require.NoError(t, err, "nothing to compare with")
			default:
				require.ErrorIs(t, err, runner.ErrCorrupt)
				require.ErrorContains(t, err, "stage 3 (affine 3)")
				require.Equal(t, 2*replicas-1, e.Rank)
			}
		}
	}
}

// TestAuditChangesNoNumber trains with and without audits, with and without shards, and with even and uneven shares of
// the batch.
func TestAuditChangesNoNumber(t *testing.T) {
	testkit.Slow(t)
	for _, of := range []struct{ replicas, shard int }{{1, 0}, {2, 0}, {2, 2}, {3, 3}} {
		train := func(every int) (map[string][]float32, float64) {
			r := &replicated{replicas: of.replicas, ranks: 2, shard: of.shard, change: func(cfg *runner.Config[buffer]) { cfg.Audit = every }}
			weights, result := r.train(t, 4, 5)
			return weights, result.Loss("loss")
		}
		weights, loss := train(0)
		have, again := train(1)
		require.Equal(t, loss, again)
		require.Equal(t, weights, have, "%+v", of)
	}
}

// TestAuditInIdleTime shares three microbatches between two replicas: the second replica, which has only one of them,
// repeats one of the first replica, and no rank has more actions than without an audit.
func TestAuditInIdleTime(t *testing.T) {
	actions := func(m, every int) (all []int64) {
		r := &replicated{replicas: 2, ranks: 1, change: func(cfg *runner.Config[buffer]) { cfg.Audit = every }}
		result, err := r.build(t).Step(t.Context(), m, r.source())
		require.NoError(t, err)
		for _, rank := range result.Ranks {
			all = append(all, rank.Actions)
		}
		return all
	}
	idle, audited := actions(3, 0), actions(3, 1)
	require.Less(t, idle[1], idle[0])
	require.Equal(t, []int64{idle[0], idle[0]}, audited)
	require.Equal(t, actions(4, 0), audited)
}

// rounding is a host with another name, which stands for another way of rounding.
type rounding struct {
	*kernels.Host
	name string
}

func (r rounding) Name() string { return r.name }

// TestAuditOfOtherRounding: replicas that round differently are not compared with each other, but each is compared with
// itself.
func TestAuditOfOtherRounding(t *testing.T) {
	for _, names := range [][2]string{{"a", "a"}, {"a", "b"}} {
		r := &replicated{replicas: 2, ranks: 1}
		r.change = func(cfg *runner.Config[buffer]) {
			cfg.Audit = 1
			for i, host := range r.hosts {
				cfg.Spaces[i] = rounding{host, names[i]}
			}
		}
		run := r.build(t)
		r.cfg.Spaces[0], r.cfg.Spaces[1] = r.hosts[0], r.hosts[1]
		for _, a := range r.stages[2:] {
			a.flip = func(what string, _ int, x []float32) {
				if what == "output" {
					flipBit(&x[0], 1)
				}
			}
		}
		_, err := run.Step(t.Context(), 4, r.source())
		if names[0] == names[1] {
			require.ErrorIs(t, err, runner.ErrCorrupt)
		} else {
			require.NoError(t, err)
		}
	}
}

// TestAuditWithoutComparison: with three microbatches, only the second replica repeats a microbatch, and it is one of
// the first replica's.
func TestAuditWithoutComparison(t *testing.T) {
	for _, of := range []struct {
		name string
		want int
	}{{"a", 0}, {"b", -1}} {
		r := &replicated{replicas: 2, ranks: 1}
		r.change = func(cfg *runner.Config[buffer]) {
			cfg.Audit = 1
			cfg.Spaces[0], cfg.Spaces[1] = rounding{r.hosts[0], "a"}, rounding{r.hosts[1], of.name}
		}
		run := r.build(t)
		r.cfg.Spaces[0], r.cfg.Spaces[1] = r.hosts[0], r.hosts[1]
		result := runStep(t, run, 3, r.source())
		require.Equal(t, of.want, result.Audited)
	}
}

// sealed is a space whose buffers cannot be encoded, like those of a host with HostConfig.Alone.
type sealed struct{ *kernels.Host }

func (sealed) Encode(io.Writer, buffer) error { return kernels.ErrNoLender }

// TestAuditRefuses: the requirements of an audited step are checked as early as possible.
func TestAuditRefuses(t *testing.T) {
	fails := func(text string, change func(cfg *runner.Config[buffer])) {
		t.Helper()
		r := &replicated{replicas: 1, ranks: 1, fails: text, change: change}
		r.build(t)
	}
	fails("Audit is -1", func(cfg *runner.Config[buffer]) { cfg.Audit = -1 })
	fails("an audited step has one microbatch more", func(cfg *runner.Config[buffer]) {
		plan, err := schedule.DepthFirst(schedule.Params{Placement: cfg.Plan.Placement, Microbatches: 2})
		require.NoError(t, err)
		for rank := range plan.Programs {
			var all []schedule.Action
			for action := range plan.All(rank) {
				all = append(all, action)
			}
			plan.Programs[rank] = []schedule.Segment{{Body: all, Repeat: 1}}
		}
		cfg.Audit, cfg.Plan = 1, runner.Plan{Fixed: plan}
	})
	fails("rank 0: the space has no bytes to sum, which Audit needs", func(cfg *runner.Config[buffer]) {
		cfg.Audit, cfg.Spaces = 3, []memory.Space[buffer]{sealed{cfg.Spaces[0].(*kernels.Host)}}
	})
	r := &replicated{replicas: 1, ranks: 1, rule: schedule.BreadthFirstDescending, change: func(cfg *runner.Config[buffer]) { cfg.Audit = 1 }}
	_, err := r.build(t).Step(t.Context(), 3, r.source())
	require.ErrorIs(t, err, runner.ErrPlan)
	require.ErrorContains(t, err, "ascending order")
	r = &replicated{replicas: 1, ranks: 1, change: func(cfg *runner.Config[buffer]) { cfg.Audit = 5 }}
	_, err = r.build(t).Step(t.Context(), 3, runner.Stream(func(context.Context) (int, error) { return 0, nil }, func(_ int, e batchctx.Entry[buffer]) error { return r.put(e, 0) }))
	require.ErrorContains(t, err, "use runner.Indexed")
	cfg := config(chain())
	cfg.Audit = 1
	_, err = runner.New(cfg)
	require.ErrorContains(t, err, "transport.Codec")
}

// TestAuditOfASource: a source that makes another entry the second time is not taken for corruption.
func TestAuditOfASource(t *testing.T) {
	r := &replicated{replicas: 2, ranks: 1, change: func(cfg *runner.Config[buffer]) { cfg.Audit = 1 }}
	_, err := r.build(t).Step(t.Context(), 4, runner.Indexed(func(_ context.Context, e batchctx.Entry[buffer]) error { return r.put(e, e.Rank()) }))
	require.ErrorIs(t, err, runner.ErrIndexed)
}
