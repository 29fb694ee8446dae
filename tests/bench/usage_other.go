//go:build !linux

package main

import "time"

// residentPeak returns 0: it is known only on Linux.
func residentPeak() float64 { return 0 }

// processorTime returns the wall-clock time: processor time is known only on Linux.
func processorTime() time.Duration { return time.Since(began) }

var began = time.Now()
