package plantest

import "github.com/stretchr/testify/require"
import "github.com/weir-ml/weir/schedule"

// RequireWhole fails where a plan does not run what it must, all of it on the right
// ranks, or has a joined pair that is none.
func RequireWhole(t require.TestingT, p *schedule.Plan) {
	type work struct{ f, b, i, w int }
	has := map[Cell]*work{}
	for rank := range p.Programs {
		joined := false
		for a := range p.All(rank) {
			s, k := a.Stage(), a.Kind()
			require.Equal(t, p.Placement.Rank[s], rank, "%s: %v", p.Name, a)
			at := Cell{Stage: s, Mb: a.Microbatch()}
			if has[at] == nil {
				has[at] = &work{}
			}
			switch k {
			case schedule.F:
				has[at].f++
			case schedule.B:
				has[at].b++
			case schedule.I:
				has[at].i++
			case schedule.W:
				has[at].w++
			}
			require.False(t, joined && a.Joined(), "%s: three in a pair at %v", p.Name, a)
			joined = a.Joined()
		}
		require.False(t, joined, "%s: rank %d ends with half a pair", p.Name, rank)
		for _, s := range p.Programs[rank] {
			require.False(t, s.Body[len(s.Body)-1].Joined(), "%s: a body ends with half a pair", p.Name)
		}
	}
	count := 0
	for s := range p.Placement.Stages() {
		lo, hi := p.Span(s)
		for m := lo; m < hi; m++ {
			got := has[Cell{Stage: s, Mb: m}]
			require.NotNil(t, got, "%s: stage %d never runs microbatch %d", p.Name, s, m)
			frozen := len(p.Frozen) > 0 && p.Frozen[s]
			switch {
			case !p.HasBackward(s):
				require.Equal(t, work{f: 1}, *got, "%s: stage %d microbatch %d", p.Name, s, m)
			case frozen:
				require.Equal(t, work{f: 1, i: 1}, *got, "%s: stage %d microbatch %d", p.Name, s, m)
			case got.b > 0:
				require.Equal(t, work{f: 1, b: 1}, *got, "%s: stage %d microbatch %d", p.Name, s, m)
			default:
				require.Equal(t, work{f: 1, i: 1, w: 1}, *got, "%s: stage %d microbatch %d", p.Name, s, m)
			}
			count++
		}
	}
	require.Len(t, has, count)
}
