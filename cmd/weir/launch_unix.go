//go:build unix

package main

import (
	"os"
	"syscall"
)

// passedOn lists the signals that are forwarded to the processes of a job.
var passedOn = []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2}
