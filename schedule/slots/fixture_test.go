package slots_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/testing/testkit"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/slots"
)

// TestFixtures compares slots with those that earlier versions wrote.
func TestFixtures(t *testing.T) {
	testkit.Format{
		Name: "slots-%d.json", Mark: "\"schema\": %d", Number: 1, Remedy: "the version of Weir that wrote it",
		Write: func(t *testing.T) []byte {
			table, err := slots.Make(slots.Config{}, made(t, schedule.Schedules()[0], 2, 1, 4))
			require.NoError(t, err)
			return []byte(text(t, table))
		},
		Read: func(text []byte) error {
			_, err := slots.Read(bytes.NewReader(text))
			return err
		},
	}.Test(t)
}
