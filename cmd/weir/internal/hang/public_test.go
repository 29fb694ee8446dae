package hang_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/cmd/weir/internal/flightrec"
	"github.com/weir-ml/weir/cmd/weir/internal/hang"
)

// TestPublicDumps blames exactly the ranks in which faults were injected, in the four sets of
// NVIDIA/nvidia-resiliency-ext, tests/attribution/unit/fr_traces. They are read from
// $WEIR_FLIGHT_DUMPS.
func TestPublicDumps(t *testing.T) {
	root := os.Getenv("WEIR_FLIGHT_DUMPS")
	if root == "" {
		t.Skip("set WEIR_FLIGHT_DUMPS to a copy of fr_traces of NVIDIA/nvidia-resiliency-ext")
	}
	for name, want := range map[string][]int{"gpu_error_1st": {12, 14}, "gpu_error_2nd": {9, 14}, "lock_gil_1st": {9, 14}, "lock_gil_2nd": {10, 15}} {
		t.Run(name, func(t *testing.T) {
			set, err := flightrec.Read(filepath.Join(root, name))
			require.NoError(t, err)
			require.Len(t, set.Dumps, 16)
			r := hang.Dumps(set)
			require.Equal(t, want, r.Blamed)
			require.Len(t, r.Behind, 14)
			for _, x := range r.Reasons {
				t.Log(x)
			}
			for _, x := range r.Findings {
				t.Log(x.Text)
			}
		})
	}
}
