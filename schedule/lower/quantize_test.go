package lower_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-ml/weir/internal/testing/plantest"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/check"
	"github.com/weir-ml/weir/schedule/lower"
	"github.com/weir-ml/weir/schedule/simulate"
)

// copying returns the facts of stages, of which the listed stages compute with copies of their
// weights.
func copying(stages int, listed ...int) []schedule.StageInfo {
	facts := make([]schedule.StageInfo, stages)
	for _, s := range listed {
		facts[s].Quantizes = true
	}
	return facts
}

func TestQuantized(t *testing.T) {
	for _, test := range []struct {
		name        string
		where       lower.Quantizing
		stages      []int
		given, want string
	}{
		{"before use", lower.BeforeUse, []int{0, 1}, "0F0 0F1 1F0 1B0 1F1 1B1 0B0 0B1",
			"0QUANTIZE 0F0 0F1 1QUANTIZE 1F0 1B0 1F1 1B1 0B0 0B1"},
		{"at the start", lower.AtStart, []int{0, 1}, "0F0 0F1 1F0 1B0 1F1 1B1 0B0 0B1",
			"0QUANTIZE 1QUANTIZE 0F0 0F1 1F0 1B0 1F1 1B1 0B0 0B1"},
		{"one of them", lower.AtStart, []int{1}, "0F0 0F1 1F0 1B0 1F1 1B1 0B0 0B1",
			"1QUANTIZE 0F0 0F1 1F0 1B0 1F1 1B1 0B0 0B1"},
		{"at the plan's own QUANTIZE", lower.BeforeUse, []int{0, 1}, "1QUANTIZE 0F0 0F1 1F0 1B0 1F1 1B1 0B0 0B1",
			"1QUANTIZE 0QUANTIZE 0F0 0F1 1F0 1B0 1F1 1B1 0B0 0B1"},
		{"before a pair", lower.BeforeUse, []int{1}, "0F0 (0F1;1F0) 1B0 1F1 1B1 0B0 0B1",
			"0F0 1QUANTIZE (0F1;1F0) 1B0 1F1 1B1 0B0 0B1"},
		{"after the gathering", lower.AtStart, []int{0, 1}, "0UNSHARD 1UNSHARD 0F0 0F1 1F0 1B0 1F1 1B1 0B0 0B1 0RESHARD 1RESHARD",
			"0UNSHARD 0QUANTIZE 1UNSHARD 1QUANTIZE 0F0 0F1 1F0 1B0 1F1 1B1 0B0 0B1 0RESHARD 1RESHARD"},
		{"after the gathering, before use", lower.BeforeUse, []int{1}, "0F0 0F1 1UNSHARD 1F0 1B0 1RESHARD 1UNSHARD 1F1 1B1 1RESHARD 0B0 0B1",
			"0F0 0F1 1UNSHARD 1QUANTIZE 1F0 1B0 1RESHARD 1UNSHARD 1F1 1B1 1RESHARD 0B0 0B1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := planOf(t, []int{0, 0}, 2, test.given)
			q := quantized(t, p, copying(2, test.stages...), test.where)
			require.NoError(t, check.Plan(q))
			require.Equal(t, actions(t, test.want), plantest.Lists(q)[0])
			require.Equal(t, actions(t, test.given), plantest.Lists(p)[0], "the plan was changed")
		})
	}
	p := planOf(t, []int{0}, 1, "0F0 0B0")
	_, err := lower.Quantize(p, copying(2), lower.BeforeUse)
	require.ErrorIs(t, err, schedule.ErrStageInfo)
	_, err = lower.Quantize(p, copying(1), 2)
	require.ErrorIs(t, err, schedule.ErrParams)
	_, wrong := lower.Quantize(planOf(t, []int{0}, 1, "0F0 7B0"), copying(1, 0), lower.BeforeUse)
	require.ErrorIs(t, wrong, check.ErrInvalidPlan)
	require.ErrorContains(t, err, "unknown Quantizing quantizing(2): use before-use or at-start")
}

// Only the first repeat of a segment has the QUANTIZE.
func TestQuantizedSegment(t *testing.T) {
	p := &schedule.Plan{Placement: schedule.Looped(1, 1), Microbatches: 10,
		Programs: [][]schedule.Segment{{{Body: actions(t, "0F0 0B0"), Repeat: 10, Stride: 1}}}}
	q := quantized(t, p, copying(1, 0), lower.BeforeUse)
	require.Equal(t, [][]schedule.Segment{{
		{Body: actions(t, "0QUANTIZE 0F0 0B0"), Repeat: 1}, {Body: actions(t, "0F1 0B1"), Repeat: 9, Stride: 1},
	}}, q.Programs)
	q = withLifetimes(t, q, copying(1, 0), 0)
	require.Contains(t, plantest.Text(t, q), "x 1 +0: 0QUANTIZE 0F0~o 0B0~sr\nx 8 +1: 0F1~o 0B1~sr\nx 1 +1: 0F9~of 0B9~srb\n")
}

// TestCheckOfCopiedWeights changes a plan that makes copies of weights, without drops and with
// drops.
func TestCheckOfCopiedWeights(t *testing.T) {
	const good = "0QUANTIZE 0F0 1QUANTIZE 1F0 1B0 0B0 0F1 1F1 1B1 0B1"
	facts := copying(2, 0, 1)
	marked := func(list string) *schedule.Plan { // with the lifetimes of the valid plan, and other drops
		p := planOf(t, []int{0, 0}, 2, good)
		p = withLifetimes(t, p, facts, 0)
		if list == "" {
			return p
		}
		q := *p
		q.Programs = plantest.FromText(t, "0 0", 2, list).Programs
		return &q
	}
	const right = "0QUANTIZE 0F0 1QUANTIZE 1F0~io 1B0~gs 0B0~gsr 0F1~f 1F1~iof 1B1~gsb 0B1~gsrb"
	_, drops, _ := strings.Cut(plantest.Text(t, marked("")), "x 1 +0: ")
	require.Equal(t, "0QUANTIZE 0F0 1QUANTIZE 1F0~io 1B0~s 0B0~gsr 0F1~f 1F1~iof 1B1~sb 0B1~gsrb\n", strings.ReplaceAll(drops, "\n  ", " "))
	list := strings.ReplaceAll(strings.ReplaceAll(right, "1B0~gs", "1B0~s"), "1B1~gs", "1B1~s")
	require.NoError(t, check.Plan(marked(list)))
	for _, test := range []struct {
		name, old, new string
		text           string
		codes          []check.Code
	}{
		{"missing", "1QUANTIZE ", "", "Rank 0 never runs 1QUANTIZE; add it.", []check.Code{check.Missing, check.MisplacedDrop}},
		{"twice", "1F0", "1QUANTIZE 1F0", "Rank 0, action 3: 1QUANTIZE makes copies of weights that this step has already made; remove one of the two.",
			[]check.Code{check.Twice}},
		{"use before it", "0QUANTIZE 0F0", "0F0 0QUANTIZE", "Rank 0, action 0: 0F0 runs before 0QUANTIZE, which makes the copies of weights that it reads; move 0QUANTIZE before it.",
			[]check.Code{check.Order}},
		{"use after its drop", "0F0 ", "0F0~f ", "Rank 0, action 6: 0F1 reads the copies of weights for the forward, which were dropped before; let the last action that reads them drop them.",
			[]check.Code{check.UseAfterDrop}},
		{"backward after its drop", "0B0~gsr", "0B0~gsrb", "Rank 0, action 9: 0B1 reads the copies of weights for the backward, which were dropped before;",
			[]check.Code{check.UseAfterDrop}},
		{"never dropped", "0F1~f", "0F1", "Rank 0, action 6: 0F1 is the last to read the copies of its stage's weights for the forward and must drop them; give it drop f.",
			[]check.Code{check.MissingDrop}},
		{"backward never dropped", "1B1~sb", "1B1~s", "Rank 0, action 8: 1B1 is the last to read the copies of its stage's weights for the backward and must drop them; give it drop b.",
			[]check.Code{check.MissingDrop}},
		{"dropped by an action that does not read it", "0F1~f", "0F1~fb", "Rank 0, action 6: 0F1 drops the copies of weights for the backward, which it does not read; remove drop b.",
			[]check.Code{check.MisplacedDrop}},
		{"dropped by the QUANTIZE", "0QUANTIZE", "0QUANTIZE~f", "Rank 0, action 0: 0QUANTIZE drops f, but has no microbatch; remove its drops.",
			[]check.Code{check.MisplacedDrop}},
		{"of a microbatch", "0QUANTIZE", "0QUANTIZE1", "Rank 0, action 0: 0QUANTIZE1 has no microbatch of its own; omit the microbatch.",
			[]check.Code{check.UnknownMicrobatch}},
		{"joined", "0QUANTIZE", "0QUANTIZE&", "Rank 0, action 0: 0QUANTIZE is joined with 0F0; a join needs two computations that do not depend on each other.",
			[]check.Code{check.BadJoin}},
	} {
		t.Run(test.name, func(t *testing.T) {
			require.Contains(t, list, test.old)
			err := check.Plan(marked(strings.Replace(list, test.old, test.new, 1)))
			plantest.RequireCodes(t, err, test.codes...)
			require.ErrorContains(t, err, test.text)
		})
	}

	p := marked("")
	p.StageInfo = slices.Clone(p.StageInfo)
	p.StageInfo[1].Quantizes = false
	err := check.Plan(p)
	plantest.RequireCodes(t, err, check.Unexpected)
	require.ErrorContains(t, err, "Rank 0, action 2: 1QUANTIZE must not be in this plan: the stage computes with its weights, not with copies of them.")

	sharded := planOf(t, []int{0}, 1, "0QUANTIZE 0UNSHARD 0F0 0B0 0RESHARD")
	err = check.Plan(sharded)
	plantest.RequireCodes(t, err, check.Sharding)
	require.ErrorContains(t, err, "Rank 0, action 0: 0QUANTIZE computes with weights that are not gathered;")

	_, err = lower.Lifetimes(planOf(t, []int{0}, 1, "0F0 0B0"), copying(1, 0), 0)
	require.ErrorContains(t, err, "Rank 0 never runs 0QUANTIZE; add it.")
}

// TestCopiesOfSchedules adds QUANTIZE to every schedule in every mode. The check finds every single
// missing or additional drop bit of the copies.
func TestCopiesOfSchedules(t *testing.T) {
	const bits = schedule.DropForwardWeights | schedule.DropBackwardWeights
	for _, s := range schedule.Schedules() {
		t.Run(s.Name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				ranks, depth := rapid.IntRange(1, 4).Draw(t, "ranks"), rapid.IntRange(1, 2).Draw(t, "depth")
				plans := variants(t, s, ranks, depth, rapid.IntRange(1, 14).Draw(t, "microbatches"))
				if len(plans) == 0 {
					return
				}
				p := rapid.SampledFrom(plans).Draw(t, "plan")
				facts := plantest.DrawFacts(t, p, everyStage(p))
				for i := range facts {
					facts[i].Reads = [schedule.NumKinds]uint64{}
				}
				where := lower.Quantizing(rapid.IntRange(0, 1).Draw(t, "where"))
				p = rewrite(t, p, func(p *schedule.Plan) *schedule.Plan {
					return quantized(t, p, facts, where)
				})
				p = withLifetimes(t, lowered(t, p, schedule.Unlimited), facts, 0)

				p = plantest.Expand(p)
				program := p.Programs[rapid.IntRange(0, ranks-1).Draw(t, "rank")]
				if len(program) == 0 {
					return
				}
				at := rapid.IntRange(0, len(program[0].Body)-1).Draw(t, "at")
				a := program[0].Body[at]
				program[0].Body[at] = a.WithDrop(a.Drop() ^ rapid.SampledFrom([]schedule.Drop{1 << 7, 1 << 8, bits}).Draw(t, "bits"))
				require.ErrorIs(t, check.Plan(p), check.ErrInvalidPlan)
			})
		})
	}
}

// Copies add segments and proof work that do not depend on the number of microbatches.
func TestCopiesOfAMillion(t *testing.T) {
	for _, s := range schedule.Schedules() {
		placement, err := s.Place(4, 4*s.PerRank)
		require.NoError(t, err)
		facts := copying(placement.Stages(), 0, 2, placement.Stages()-1)
		for i := range facts {
			facts[i].Split, facts[i].Recomputes = true, i%2 == 0
		}
		build := func(m int) (segments int, visited int64) {
			p := plantest.Made(t, s.Rule, schedule.Params{Placement: placement, Microbatches: m})
			p = quantized(t, p, facts, lower.BeforeUse)
			p = withLifetimes(t, p, facts, 0)
			proof, err := check.Prove(p, schedule.Unlimited)
			require.NoError(t, err)
			for _, program := range p.Programs {
				segments += len(program)
			}
			return segments, proof.Visited
		}
		segments, visited := build(1 << 12)
		again, more := build(1 << 20)
		require.Equal(t, segments, again, s.Name)
		require.Less(t, more, 2*visited+100, s.Name)
	}
}

// QUANTIZE takes time on its rank once per step. At the start of the step it uses the time during
// which a rank waits for its first input, but its copies live longer.
func TestQuantizeTakesTime(t *testing.T) {
	found, placement := plantest.Find(t, "1f1b", 4, 8)
	costs := &simulate.Costs{Stages: []simulate.StageCosts{{F: 10, I: 10, W: 10, Saved: 100, Quantize: 7, ForwardWeights: 8, BackwardWeights: 9}}}
	simulated := func(where lower.Quantizing, quantizes bool) *simulate.Report {
		p := plantest.Made(t, found.Rule, schedule.Params{Placement: placement, Microbatches: 16})
		if quantizes {
			p = quantized(t, p, copying(8, 0, 1, 2, 3, 4, 5, 6, 7), where)
		}
		report, err := simulate.Run(lowered(t, p, schedule.Unlimited), costs, schedule.Unlimited)
		require.NoError(t, err)
		return report
	}
	none, before, start := simulated(lower.BeforeUse, false), simulated(lower.BeforeUse, true), simulated(lower.AtStart, true)
	require.Equal(t, none.Ideal+2*7, before.Ideal)
	require.Equal(t, none.Ideal+2*7, start.Ideal)
	require.EqualValues(t, 1140, none.Makespan)
	require.EqualValues(t, 1140+5*7, before.Makespan, "both stages of rank 0, and the second one of each rank behind it")
	require.EqualValues(t, 1140+2*7, start.Makespan, "those of rank 0 alone")
	require.Zero(t, none.Ranks[3].Classes[memory.FP8])
	require.EqualValues(t, 2*(8+9), before.Ranks[3].Classes[memory.FP8])
	for rank := range start.Ranks {
		require.Zero(t, start.Ranks[rank].First, "a rank begins with its copies")
	}

	one := planOf(t, []int{0}, 2, "0QUANTIZE 0F0 0B0 0F1 0B1")
	var fp8 []int64
	_, err := simulate.Timeline(one, costs, 0, func(e simulate.TimedAction) { fp8 = append(fp8, e.Live[memory.FP8]) })
	require.NoError(t, err)
	require.Equal(t, []int64{17, 17, 17, 9, 0}, fp8)
}

// A missing drop of copies is reported at the last read, even if the repeats of the program are
// skipped.
func TestMissingDropOfCopies(t *testing.T) {
	const m = 100_000
	plan := plantest.Made(t, schedule.DepthFirst, schedule.Params{Placement: schedule.Looped(1, 1), Microbatches: m})
	plan = quantized(t, plan, copying(1, 0), lower.BeforeUse)
	plan = withLifetimes(t, plan, copying(1, 0), 0)
	require.NoError(t, check.Plan(plan))
	for drop, want := range map[schedule.Drop]string{
		schedule.DropForwardWeights:  "Rank 0, action 199999: 0F99999 is the last to read the copies of its stage's weights for the forward and must drop them; give it drop f.",
		schedule.DropBackwardWeights: "Rank 0, action 200000: 0B99999 is the last to read the copies of its stage's weights for the backward and must drop them; give it drop b.",
	} {
		kept := *plan
		kept.Programs = [][]schedule.Segment{slices.Clone(plan.Programs[0])}
		for i, s := range kept.Programs[0] {
			body := slices.Clone(s.Body)
			for k, a := range body {
				body[k] = a.WithDrop(a.Drop() &^ drop)
			}
			kept.Programs[0][i].Body = body
		}
		err := check.Plan(&kept)
		plantest.RequireCodes(t, err, check.MissingDrop)
		require.ErrorContains(t, err, want)
	}
}

// Shard rejects a plan with QUANTIZE; running Shard first works.
func TestShardBehindQuantized(t *testing.T) {
	plan := plantest.Made(t, schedule.Interleaved, schedule.Params{Placement: schedule.Looped(2, 4), Microbatches: 4})
	_, err := lower.Shard(quantized(t, plan, copying(4, 1, 2), lower.BeforeUse), 2)
	require.ErrorIs(t, err, schedule.ErrParams)
	require.ErrorContains(t, err, "already has 2QUANTIZE, whose weights would not be gathered: run Shard first, then Quantize")

	plan = sharded(t, plan, 2)
	for _, where := range []lower.Quantizing{lower.BeforeUse, lower.AtStart} {
		require.NoError(t, check.Plan(quantized(t, plan, copying(4, 1, 2), where)))
	}
}

// quantized returns a plan with QUANTIZE.
func quantized(t require.TestingT, plan *schedule.Plan, facts []schedule.StageInfo, point lower.Quantizing) *schedule.Plan {
	plan, err := lower.Quantize(plan, facts, point)
	require.NoError(t, err)
	return plan
}
