package runner_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/stages"
)

// entryOf returns a part of an entry: a number from which classOf recognizes an entry, and which
// encodes its microbatch.
func entryOf(microbatch int) number { return num(float64(1+microbatch) * 0x1p-700) }

// reading is the first or the last stage of a chain. It reads a part of the entry in its forward,
// and does not keep it.
type reading struct{ *times }

func (r reading) Spec() stages.Spec {
	spec := r.times.Spec()
	spec.Reads = []stages.Read{{Part: "tokens"}}
	if r.last {
		spec.Reads = []stages.Read{{Part: "labels"}}
	}
	return spec
}

func (r reading) Forward(ctx context.Context, mb view, in, out []number) error {
	part := mb.Part(1)
	if *part != *entryOf(mb.Index()) {
		return fmt.Errorf("microbatch %d has the entry of %v", mb.Index(), *part/0x1p-700-1)
	}
	if r.last {
		return r.times.Forward(ctx, mb, in, out)
	}
	out[0] = num(1)
	mb.Save(1, num(1))
	return nil
}

// holding counts the entry parts that a rank holds.
type holding struct {
	*memory.GCSpace[number]
	now, most int
}

func (h *holding) Hold(n number) (int64, error) {
	if h.Class(n) == memory.Entry {
		h.now++
		h.most = max(h.most, h.now)
	}
	return h.GCSpace.Hold(n)
}

func (h *holding) Unhold(n number) (int64, error) {
	if h.Class(n) == memory.Entry {
		h.now--
	}
	return h.GCSpace.Unhold(n)
}

// heldEntries trains m microbatches and returns, by rank, the largest number of entry parts held:
// tokens on the first rank of a copy of the model, labels on the last one.
func heldEntries(t *testing.T, placement schedule.Placement, rule schedule.Rule, m int) []int {
	t.Helper()
	r := &ranksOf{placement: placement, rule: rule, capacity: 1}
	rows := rowsOf(placement)
	spaces := make([]*holding, placement.Ranks)
	r.change = func(cfg *runner.Config[number]) {
		for rank, space := range r.spaces {
			spaces[rank] = &holding{GCSpace: space}
			cfg.Spaces[rank] = spaces[rank]
		}
		for s, row := range rows {
			if row.first || row.last {
				cfg.Stages[s] = reading{row}
			}
		}
	}
	sources := make([]runner.Source[number], placement.Ranks)
	for rank := range sources {
		asked := 0
		sources[rank] = runner.Indexed(func(_ context.Context, e batchctx.Entry[number]) error {
			if e.Index() != asked {
				return fmt.Errorf("asked for microbatch %d after %d", e.Index(), asked)
			}
			asked++
			e.Put("tokens", entryOf(e.Index()))
			e.Put("labels", entryOf(e.Index()))
			return nil
		})
	}
	_, err := r.group(t, rows).Step(t.Context(), m, runner.PerRank(sources...))
	require.NoError(t, err)
	r.released(t)
	most := make([]int, len(spaces))
	for rank, space := range spaces {
		require.Zero(t, space.now)
		most[rank] = space.most
	}
	return most
}

// A rank holds as many entries with thousands of microbatches as with tens, except under
// breadth-first, which keeps all of them.
func TestEntriesDoNotGrow(t *testing.T) {
	for _, s := range schedule.Schedules() {
		if s.Name == "breadth-first" {
			continue
		}
		t.Run(s.Name, func(t *testing.T) {
			const ranks = 4
			placement, err := s.Place(ranks, ranks*s.PerRank)
			require.NoError(t, err)
			few, more := heldEntries(t, placement, s.Rule, 64), 512
			if s.Name == "dualpipe" {
				more = 4096
			}
			require.LessOrEqual(t, slices.Max(few), 2*ranks)
			require.Equal(t, few, heldEntries(t, placement, s.Rule, more))
		})
	}
}

// The number of waiting entries is the distance between the copies of the model, plus the
// look-ahead.
func TestEntriesWaitForTheCopyThatIsBehind(t *testing.T) {
	placement := schedule.Placement{Ranks: 1, Rank: make([]int, 4), Copies: 2}
	for behind := range 6 {
		for _, repeat := range []bool{true, false} {
			m := 2 * (behind + 7)
			rule := func(p schedule.Params) (*schedule.Plan, error) {
				of := func(stage, mb int) []schedule.Action { // all actions of a microbatch, of the copy that begins with the stage
					return []schedule.Action{schedule.NewAction(schedule.F, stage, mb), schedule.NewAction(schedule.F, stage+1, mb),
						schedule.NewAction(schedule.B, stage+1, mb), schedule.NewAction(schedule.B, stage, mb)}
				}
				second := p.Microbatches / 2
				program := []schedule.Segment{
					{Body: of(0, 0), Repeat: behind, Stride: 1},
					{Body: append(of(0, behind), of(2, second)...), Repeat: 7, Stride: 1},
					{Body: of(2, second+7), Repeat: behind, Stride: 1},
				}
				if behind == 0 {
					program = program[1:2]
				}
				plan := &schedule.Plan{Placement: p.Placement, Mode: p.Mode, Microbatches: p.Microbatches, Programs: [][]schedule.Segment{program}}
				if !repeat {
					plan.Programs[0] = []schedule.Segment{{Body: slices.Collect(plan.All(0)), Repeat: 1}}
				}
				return plan, nil
			}
			require.Equal(t, []int{2 * (1 + behind)}, heldEntries(t, placement, rule, m), "%d behind", behind)
		}
	}
}

// The number of the first non-finite microbatch is its number in the batch, not in the plan.
func TestTheFirstNonFiniteIsOfTheBatch(t *testing.T) {
	r := &ranksOf{placement: schedule.Bidirectional(2), rule: schedule.DualPipe, capacity: 1}
	rows := rowsOf(r.placement)
	for _, row := range rows {
		row.lossSum = func(x float64, item int) float64 {
			if item >= 3 {
				return math.Inf(1)
			}
			return x
		}
	}
	result, err := r.group(t, rows).Step(t.Context(), 8, r.sources())
	require.NoError(t, err)
	require.Equal(t, 3, result.FirstNonFinite)
	r.released(t)
}

// Copies alternate between microbatches, so that slices of a sequence would go to different
// copies.
func TestSlicesOfCopiesAreRefused(t *testing.T) {
	r := &ranksOf{placement: schedule.Bidirectional(2), capacity: 1}
	r.rule = func(p schedule.Params) (*schedule.Plan, error) {
		plan, err := schedule.DualPipe(p)
		plan.Slices = 2
		return plan, err
	}
	_, err := r.group(t, rowsOf(r.placement)).Step(t.Context(), 8, r.sources())
	require.ErrorIs(t, err, runner.ErrPlan)
	require.ErrorContains(t, err, "sequences in 2 slices for 2 copies of the model")
}
