package plantest

import "strings"
import "github.com/stretchr/testify/require"
import "github.com/weir-ml/weir/schedule"

// Actions returns the actions of a list: words, pairs such as (1F1;2B0), and - for none.
func Actions(t require.TestingT, list string) (parsed []schedule.Action) {
	for word := range strings.FieldsSeq(list) {
		if word == "-" {
			parsed = append(parsed, 0)
			continue
		}
		pair := strings.Split(strings.Trim(word, "()"), ";")
		for i, text := range pair {
			a, err := schedule.ParseAction(text)
			require.NoError(t, err)
			parsed = append(parsed, a.WithJoin(i+1 < len(pair)))
		}
	}
	return parsed
}

// PlanOf returns the plan of these lists, one for each rank.
func PlanOf(t require.TestingT, placement []int, microbatches int, programs ...string) *schedule.Plan {
	p := &schedule.Plan{Name: "lists", Placement: schedule.Placement{Ranks: len(programs), Rank: placement}, Microbatches: microbatches}
	for _, list := range programs {
		p.Programs = append(p.Programs, []schedule.Segment{{Body: Actions(t, list), Repeat: 1}})
	}
	return p
}
