package format_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/testing/testkit"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/format"
	"github.com/weir-ml/weir/schedule/lower"
	"github.com/weir-ml/weir/schedule/simulate"
)

// TestFixtures compares plans in JSON with those that earlier versions wrote. weir convert reads schema 1.
func TestFixtures(t *testing.T) {
	testkit.Format{
		Name: "plan-%d.json", Mark: "{\n  \"schema\": %d", Number: 2, Older: []int{1}, Remedy: "the version of Weir that wrote it",
		Write: func(t *testing.T) []byte {
			plan, err := schedule.ZB1P(schedule.Params{Placement: schedule.Looped(2, 2), Microbatches: 4})
			require.NoError(t, err)
			facts := []schedule.StageInfo{{Split: true}, {Split: true}}
			facts[0].Reads[schedule.F], facts[1].Reads[schedule.I] = 1, 2
			plan, err = lower.Prepare(plan, lower.Passes{StageInfo: facts, Parts: 2, Capacity: 1})
			require.NoError(t, err)
			var text bytes.Buffer
			require.NoError(t, format.WriteJSON(&text, plan, &simulate.Costs{Stages: []simulate.StageCosts{{F: 1, I: 1, W: 1}, {F: 2, I: 2, W: 2}}}))
			return text.Bytes()
		},
		Read: func(text []byte) error {
			_, err := format.Read(bytes.NewReader(text), format.Options{OldSchema: true})
			return err
		},
	}.Test(t)
}
