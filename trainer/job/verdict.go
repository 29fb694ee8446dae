package job

import (
	"slices"
	"strings"

	"github.com/weir-ml/weir/internal/hang"
	"github.com/weir-ml/weir/transport"
	"github.com/weir-ml/weir/transport/tcp"
)

// Verdict returns a line with the ranks that all others wait for, directly or indirectly. The
// ranks' current activity is from goroutines of this process (Runner.Standings), or from the
// ranks of a World. It returns "" if no rank waits. `weir hang` applies the same rule to dumps.
func Verdict(ranks []transport.Standing, statuses []tcp.Status) string {
	ranks = slices.Clone(ranks)
	for _, status := range statuses {
		ranks = append(ranks, status.Standing())
	}
	if report := hang.Live(ranks); report.Found() {
		return strings.ReplaceAll(report.Verdict(), "\n", ": ") + "\n"
	}
	return ""
}
