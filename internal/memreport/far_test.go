package memreport_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/memreport"
	"github.com/weir-ml/weir/trainer/report"
)

// The summary, the page and the comparison show far memory if the log has it, and a peak that is not
// the planned one.
func TestFarMemory(t *testing.T) {
	near, away := &memreport.Log{}, &memreport.Log{}
	for mb := range 4 {
		r := excessive(1, 0, mb, 0, 0)
		r.Planned, r.LivePlanned, r.PeakPlanned = true, r.Live, r.Peak
		require.NoError(t, near.Add(r))
		r.Far, r.FarPeak, r.FarPlanned = 1024, int64(1024*(mb+1)), int64(2048*(mb+1))
		require.NoError(t, away.Add(r))
	}
	require.NotContains(t, textOf(t, near), "far")
	require.Contains(t, textOf(t, away), "far peak")
	require.Contains(t, textOf(t, away), "rank 0 had 4.0 KiB (4,096 bytes) in far memory at its peak, planned 8.0 KiB (8,192 bytes)\n")
	require.Contains(t, away.Page("log").Facts, report.Fact{Label: "far peak", Value: "4.0 KiB", Note: "in far memory; planned 8.0 KiB (8,192 bytes)"})
	var out strings.Builder
	require.NoError(t, memreport.Compare(&out, near.Summary(), away.Summary()))
	require.Equal(t, `  rank   peak A        B  reserved A        B  growth A    B  far A        B
     0  1.5 KiB  1.5 KiB     4.0 KiB  4.0 KiB       0 B  0 B    0 B  4.0 KiB
`, out.String())
}
