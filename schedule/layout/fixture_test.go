package layout_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/testing/testkit"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/layout"
)

// TestFixtures compares profiles with those that earlier versions wrote.
func TestFixtures(t *testing.T) {
	testkit.Format{
		Name: "profile-%d.json", Mark: "\"schema\": %d", Number: 1, Remedy: "the version of Weir that wrote it",
		Write: func(t *testing.T) []byte {
			profile := model(2, 1, 16, 5)
			profile.StageInfo = facts(schedule.Looped(1, 2), true)
			profile.Params[1][0].Frozen = true
			var text bytes.Buffer
			require.NoError(t, layout.Write(&text, profile))
			return text.Bytes()
		},
		Read: func(text []byte) error {
			_, err := layout.Read(bytes.NewReader(text))
			return err
		},
	}.Test(t)
}
