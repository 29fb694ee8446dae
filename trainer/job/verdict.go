package job

import (
	"slices"
	"strings"

	"github.com/weir-ml/weir/internal/hang"
	"github.com/weir-ml/weir/transport"
	"github.com/weir-ml/weir/transport/tcp"
)

// Verdict says in a line which ranks all others wait for, directly or through others, by what each
// rank does now: goroutines of this process (Runner.Standings), or the ranks of a World. It is
// empty if no rank waits. What `weir hang` says of dumps comes from the same rule.
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
