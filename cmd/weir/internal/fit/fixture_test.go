package fit_test

import (
	"bytes"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/cmd/weir/internal/fit"
	"github.com/weir-ml/weir/internal/testing/testkit"
)

// TestFixtures reads profiles that the Python package wrote. Its test_fixture compares what it writes today.
func TestFixtures(t *testing.T) {
	testkit.Format{
		Name: "profile-%d.json", Mark: "\"schema\": %d", Number: 2, Remedy: "the version of Weir that wrote it",
		Write: func(t *testing.T) []byte {
			text, err := os.ReadFile("testdata/formats/profile-2.json")
			require.NoError(t, err)
			return text
		},
		Read: func(text []byte) error {
			_, err := fit.ReadPieces(bytes.NewReader(text))
			return err
		},
	}.Test(t)
}
