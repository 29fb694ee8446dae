package lower_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-ml/weir/internal/testing/plantest"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/check"
	"github.com/weir-ml/weir/schedule/lower"
)

// rewrite runs a pass, and requires that it gives the same result for a plan in segments and for
// the plan written out, and does not modify its argument.
func rewrite(t require.TestingT, p *schedule.Plan, pass func(*schedule.Plan) *schedule.Plan) *schedule.Plan {
	before := plantest.Text(t, p)
	got := pass(p)
	require.Equal(t, before, plantest.Text(t, p), "the plan was changed")
	require.Equal(t, plantest.Lists(pass(plantest.Expand(p))), plantest.Lists(got))
	nested := plantest.Nested(p, rand.New(rand.NewPCG(plantest.Seed(), 0)))
	require.Equal(t, plantest.Lists(got), plantest.Lists(pass(nested)), "seed %d", plantest.Seed())
	require.NoError(t, check.Plan(got))
	return got
}

func TestSplit(t *testing.T) {
	p := planOf(t, []int{0}, 3, "0F0 (0B0;0F1) (0F2;0B1) 0B2")
	require.Equal(t, actions(t, "0F0 (0I0;0F1) 0W0 (0F2;0I1) 0W1 0I2 0W2"), plantest.Lists(lower.Split(p))[0])

	both := planOf(t, []int{0, 0}, 2, "0F0 1F0 0F1 1F1 1B0 (0B0;1B1) 0B1")
	require.Equal(t, actions(t, "0F0 1F0 0F1 1F1 1I0 1W0 (0I0;1I1) 0W0 1W1 0I1 0W1"), plantest.Lists(lower.Split(both))[0])
}

func TestUnsplit(t *testing.T) {
	p := planOf(t, []int{0, 0}, 2, "0F0 1F0 1I0 (1W0;0F1) 0I0 (1F1;0W0) 1I1 (0I1;1W1) 0W1")
	for _, test := range []struct {
		stages []bool
		want   string
	}{
		{[]bool{false, false}, "0F0 1F0 1I0 (1W0;0F1) 0I0 (1F1;0W0) 1I1 (0I1;1W1) 0W1"},
		{[]bool{true, false}, "0F0 1F0 1I0 (1W0;0F1) 0B0 1F1 1I1 (0B1;1W1)"},
		{[]bool{false, true}, "0F0 1F0 1B0 0F1 0I0 (1F1;0W0) 1B1 0I1 0W1"},
		{[]bool{true, true}, "0F0 1F0 1B0 0F1 0B0 1F1 1B1 0B1"},
	} {
		got, err := lower.Unsplit(p, test.stages)
		require.NoError(t, err)
		require.NoError(t, check.Plan(got))
		require.Equal(t, actions(t, test.want), plantest.Lists(got)[0])
	}
	_, err := lower.Unsplit(p, []bool{true})
	require.ErrorIs(t, err, schedule.ErrParams)
	require.ErrorContains(t, err, "there are 1 entries for 2 stages")
}

// A frozen stage after a trained stage has only I, and keeps it.
func TestUnsplitFrozen(t *testing.T) {
	p := planOf(t, []int{0, 0}, 1, "0F0 1F0 1I0 0I0 0W0")
	p.Frozen = []bool{false, true}
	got, err := lower.Unsplit(p, []bool{true, true})
	require.NoError(t, err)
	require.NoError(t, check.Plan(got))
	require.Equal(t, actions(t, "0F0 1F0 1I0 0B0"), plantest.Lists(got)[0])
}

// The halves of a backward may be in different repeats or different segments.
func TestMerge(t *testing.T) {
	segment := func(repeat, stride int, list string) schedule.Segment {
		return schedule.Segment{Body: actions(t, list), Repeat: repeat, Stride: stride}
	}
	for _, test := range []struct {
		name    string
		program []schedule.Segment
		want    []schedule.Segment
	}{
		{"apart", []schedule.Segment{segment(3, 1, "0F0 0I0"), segment(3, 1, "0W0")},
			[]schedule.Segment{segment(3, 1, "0F0 0I0"), segment(3, 1, "0W0")}},
		{"within a body", []schedule.Segment{segment(3, 1, "0F0 0I0 0W0")},
			[]schedule.Segment{segment(3, 1, "0F0 0B0")}},
		{"of a pair", []schedule.Segment{segment(1, 0, "0F0 0F1 0F2 (0I0;0I1) 0W1 0I2 (0W2;0W0)")},
			[]schedule.Segment{segment(1, 0, "0F0 0F1 0F2 (0I0;0I1) 0W1 0I2 (0W2;0W0)")}},
		{"between segments", []schedule.Segment{segment(1, 0, "0F0 0F1 0F2"), segment(3, -1, "0I2"), segment(3, 1, "0W0")},
			[]schedule.Segment{segment(1, 0, "0F0 0F1 0F2"), segment(2, -1, "0I2"), segment(1, 0, "0B0"), segment(2, 1, "0W1")}},
		{"between repeats", []schedule.Segment{segment(1, 0, "0F0 0I0"), segment(2, 1, "0W0 0F1 0I1"), segment(1, 0, "0W2")},
			[]schedule.Segment{segment(1, 0, "0F0 0B0"), segment(1, 1, "0F1 0B1"), segment(1, 0, "0F2 0B2")}},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := planOf(t, []int{0}, 3, "")
			p.Programs = [][]schedule.Segment{test.program}
			require.NoError(t, check.Plan(p))
			require.Equal(t, test.want, rewrite(t, p, lower.Merge).Programs[0])
		})
	}
}

// Split and Merge are inverses for plans without joins, and all passes accept the plans of every
// schedule.
func TestRewrites(t *testing.T) {
	microbatches := func(ranks int) []int { return []int{1, ranks, 23} }
	everySchedule(t, []int{1, 3, 4}, []int{1, 2}, microbatches, func(t *testing.T, p *schedule.Plan) {
		merged := rewrite(t, p, lower.Merge)
		split := rewrite(t, p, lower.Split)
		if !slices.ContainsFunc(slices.Concat(plantest.Lists(p)...), schedule.Action.Joined) {
			require.Equal(t, plantest.Lists(merged), plantest.Lists(lower.Merge(split)))
		}
		rewrite(t, p, func(p *schedule.Plan) *schedule.Plan {
			whole, err := lower.Unsplit(p, slices.Repeat([]bool{true}, p.Placement.Stages()))
			require.NoError(t, err)
			for _, a := range slices.Concat(plantest.Lists(whole)...) {
				require.Contains(t, []schedule.Kind{schedule.F, schedule.B}, a.Kind())
			}
			return whole
		})
	})
}

// TestRewritesKeepLoops rewrites a program of nested loops.
func TestRewritesKeepLoops(t *testing.T) {
	p, err := schedule.ZB1P(schedule.Params{Placement: schedule.Looped(64, 256), Microbatches: 1000})
	require.NoError(t, err)
	unsplit, err := lower.Unsplit(p, slices.Repeat([]bool{true}, 256))
	require.NoError(t, err)
	for _, got := range []*schedule.Plan{p, unsplit, lower.Split(unsplit), lower.Computations(p)} {
		for rank, program := range got.Programs {
			require.True(t, slices.ContainsFunc(program, func(s schedule.Segment) bool { return s.Inner != nil }), "rank %d", rank)
		}
	}
}

func TestRewritesOfDisorder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawDisorder(t)
		rewrite(t, p, lower.Merge)
		rewrite(t, p, lower.Split)
		stages := rapid.SliceOfN(rapid.Bool(), p.Placement.Stages(), p.Placement.Stages()).Draw(t, "stages")
		rewrite(t, p, func(p *schedule.Plan) *schedule.Plan {
			whole, err := lower.Unsplit(p, stages)
			require.NoError(t, err)
			return whole
		})
	})
}
