package lower_test

import (
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/schedule"
)

// actions parses a list of actions and joined pairs such as (1F1;2B0); "-" is an empty list.
func actions(t require.TestingT, list string) (parsed []schedule.Action) {
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

// planOf returns the plan with the given list for each rank.
func planOf(t require.TestingT, placement []int, microbatches int, programs ...string) *schedule.Plan {
	p := &schedule.Plan{Name: "lists", Placement: schedule.Placement{Ranks: len(programs), Rank: placement}, Microbatches: microbatches}
	for _, list := range programs {
		p.Programs = append(p.Programs, []schedule.Segment{{Body: actions(t, list), Repeat: 1}})
	}
	return p
}
