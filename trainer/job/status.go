package job

import (
	"strings"

	"github.com/weir-ml/weir/trainer/launch"
)

// Answer answers SIGUSR1 with the lines of status, which go to say, and in the process that leads
// weir status too, until stop. Any goroutine may call status.
func (w *World) Answer(status func() string, say func(line string)) (stop func()) {
	unsignal := onSignal(func() {
		for line := range strings.Lines(status()) {
			say(strings.TrimSuffix(line, "\n"))
		}
	})
	if !w.Leads() {
		return unsignal // the first process knows of all
	}
	server, err := launch.ServeStatus(status)
	if err != nil {
		return unsignal // the signal is left
	}
	return func() {
		unsignal()
		_ = server.Close() // It was only read.
	}
}
