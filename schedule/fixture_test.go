package schedule_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/testing/testkit"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/lower"
)

// TestFixtures compares the text form with the output of earlier versions.
func TestFixtures(t *testing.T) {
	testkit.Format{
		Name: "plan-%d.txt", Mark: "weir plan %d\n", Number: 1, Remedy: "the version of Weir that wrote it",
		Write: func(t *testing.T) []byte {
			plan, err := schedule.ZB1P(schedule.Params{Placement: schedule.Looped(2, 2), Microbatches: 4})
			require.NoError(t, err)
			facts := []schedule.StageInfo{{Split: true}, {Split: true}}
			facts[0].Reads[schedule.F], facts[1].Reads[schedule.I] = 1, 2
			plan, err = lower.Prepare(plan, lower.Passes{StageInfo: facts, Parts: 2, Capacity: 1})
			require.NoError(t, err)
			var text bytes.Buffer
			require.NoError(t, plan.WriteText(&text))
			return text.Bytes()
		},
		Read: func(text []byte) error {
			_, err := schedule.ParseText(bytes.NewReader(text))
			return err
		},
	}.Test(t)
}
