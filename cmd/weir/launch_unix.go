//go:build unix

package main

import (
	"os"
	"syscall"
)

// passedOn are the signals that are passed to the processes of a job.
var passedOn = []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2}
