package job

import (
	"strings"

	"github.com/weir-ml/weir/trainer/launch"
)

// Answer answers SIGUSR1 with the lines of status, which it passes to say, and in the leading
// process also answers weir status, until stop is called. Any goroutine may call status.
func (w *World) Answer(status func() string, say func(line string)) (stop func()) {
	unsignal := onSignal(func() {
		for line := range strings.Lines(status()) {
			say(strings.TrimSuffix(line, "\n"))
		}
	})
	if !w.Leads() {
		return unsignal // the first process has the status of all
	}
	server, err := launch.ServeStatus(status)
	if err != nil {
		return unsignal // SIGUSR1 still works
	}
	return func() {
		unsignal()
		_ = server.Close() // It was only read.
	}
}
