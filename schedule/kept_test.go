package schedule_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/schedule"
)

// Two segments are one where the second goes on as the first would.
func TestSegmentAndTheNext(t *testing.T) {
	f := func(mbs ...int) (body []schedule.Action) {
		for _, mb := range mbs {
			body = append(body, schedule.Act(schedule.F, 0, mb))
		}
		return body
	}
	type segment = schedule.Segment
	for _, test := range []struct {
		name     string
		first    segment
		next     segment
		together segment // the zero value where they are two
	}{
		{"once and once", segment{f(4), 1, 0}, segment{f(2), 1, 0}, segment{f(4), 2, -2}},
		{"once and often", segment{f(0, 1), 1, 0}, segment{f(2, 3), 5, 2}, segment{f(0, 1), 6, 2}},
		{"often and once", segment{f(0, 1), 3, 2}, segment{f(6, 7), 1, 0}, segment{f(0, 1), 4, 2}},
		{"often and often", segment{f(9), 3, -1}, segment{f(6), 6, -1}, segment{f(9), 9, -1}},
		{"another stride", segment{f(0), 3, 1}, segment{f(3), 2, 2}, segment{}},
		{"another stride behind one", segment{f(0), 1, 0}, segment{f(3), 2, 2}, segment{}},
		{"a gap", segment{f(0), 3, 1}, segment{f(4), 2, 1}, segment{}},
		{"another length", segment{f(0), 3, 1}, segment{f(3, 4), 1, 0}, segment{}},
		{"another order", segment{f(0, 1), 1, 0}, segment{f(3, 2), 1, 0}, segment{}},
	} {
		t.Run(test.name, func(t *testing.T) {
			both, ok := test.first.Then(test.next)
			require.Equal(t, test.together.Repeat > 0, ok)
			if ok {
				require.Equal(t, test.together, both)
			}
		})
	}
}
