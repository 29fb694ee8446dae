//go:build unix

package main

import (
	"os"
	"syscall"
)

// passedOn are the signals that a job gets.
var passedOn = []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2}
