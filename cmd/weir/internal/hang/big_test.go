package hang_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestWriteDumps writes dumps of 1,024 ranks with 2,000 entries each into $WEIR_WRITE_DUMPS, to
// measure the command with.
func TestWriteDumps(t *testing.T) {
	folder := os.Getenv("WEIR_WRITE_DUMPS")
	if folder == "" {
		t.Skip("WEIR_WRITE_DUMPS names no folder")
	}
	m := makeJob(planNamed(t, "1f1b", 8), 128, 64, false)
	m.faults = []*planted{{kind: "stopped", rank: 272, item: len(m.ranks[272].items) - 50}}
	m.run()
	for _, r := range m.ranks {
		r.Ring = 2000
		require.NoError(t, os.WriteFile(filepath.Join(folder, fmt.Sprintf("dump_%d", r.Rank)), r.Pickle(), 0o600))
	}
}
