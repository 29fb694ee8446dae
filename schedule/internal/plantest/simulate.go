package plantest

import "strings"
import "testing"
import "github.com/stretchr/testify/require"

import "github.com/weir-ml/weir/schedule"

// ByHand returns the plan of these programs, one for each rank, as actions in words;
// & joins an action with the next one.
func ByHand(t testing.TB, placement []int, microbatches int, programs ...string) *schedule.Plan {
	p := &schedule.Plan{Name: "by hand", Microbatches: microbatches, Placement: schedule.Placement{Ranks: len(programs), Rank: placement}}
	for _, program := range programs {
		var body []schedule.Action
		for _, word := range strings.Fields(program) {
			text, joined := strings.CutSuffix(word, "&")
			a, err := schedule.ParseAction(text)
			require.NoError(t, err)
			body = append(body, a.WithJoin(joined))
		}
		p.Programs = append(p.Programs, []schedule.Segment{{Body: body, Repeat: 1}})
	}
	return p
}
