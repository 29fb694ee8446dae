package job

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/weir-ml/weir/trainer/launch"
	"github.com/weir-ml/weir/transport"
	"github.com/weir-ml/weir/transport/diagnosis"
)

// Status returns a line for each rank. If any rank waits, it adds a line with the ranks that all
// others wait for, directly or through others. The statuses are those of this process's goroutines
// (Runner.Statuses) or of a Process.
func Status(ranks []transport.RankStatus) launch.Status {
	var text strings.Builder
	for _, s := range ranks {
		fmt.Fprintln(&text, s)
	}
	if verdict := diagnosis.Of(ranks).String(); verdict != "" {
		fmt.Fprintln(&text, strings.ReplaceAll(verdict, "\n", ": "))
	}
	data, _ := json.Marshal(ranks) // encoding never fails for these types
	return launch.Status{Text: text.String(), Ranks: data}
}

// Answer answers SIGUSR1 by passing the lines of status to say. In the leading process, it also
// answers weir status and weir hang. It does so until stop is called. status may be called from any
// goroutine.
func (w *Process) Answer(status func() launch.Status, say func(line string)) (stop func()) {
	unsignal := onSignal(func() {
		for line := range strings.Lines(status().Text) {
			say(strings.TrimSuffix(line, "\n"))
		}
	})
	if !w.Leads() {
		return unsignal // the first process has the status of all ranks
	}
	server, err := launch.ServeStatus(status)
	if err != nil {
		return unsignal // SIGUSR1 still works
	}
	return func() {
		unsignal()
		_ = server.Close() // no output depends on it
	}
}
