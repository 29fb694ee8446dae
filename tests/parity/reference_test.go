package parity_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestReferenceStandsAlone checks that the reference imports only kernels and memory of this module, so
// that no code of plans, books, stages or losses is on both sides of the comparison.
func TestReferenceStandsAlone(t *testing.T) {
	t.Parallel()
	const module = "github.com/weir-ml/weir/"
	out, err := exec.Command("go", "list", "-f", `{{join .TestImports "\n"}}`, ".").Output()
	require.NoError(t, err)
	var ours []string
	for line := range strings.Lines(string(out)) {
		if path, ok := strings.CutPrefix(strings.TrimSpace(line), module); ok {
			ours = append(ours, path)
		}
	}
	require.ElementsMatch(t, []string{"memory", "kernels"}, ours)
}
