//go:build unix

package job

import (
	"os"
	"os/signal"
	"syscall"
)

// onSignal calls f for every SIGUSR1, until stop is called.
func onSignal(f func()) (stop func()) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGUSR1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range signals {
			f()
		}
	}()
	return func() {
		signal.Stop(signals)
		close(signals)
		<-done
	}
}
