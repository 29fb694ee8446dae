//go:build !linux

package main

import "time"

// residentPeak is known on Linux only.
func residentPeak() int64 { return 0 }

// processorTime is known on Linux only: elsewhere it is the time of the clock.
func processorTime() time.Duration { return wallTime() }
