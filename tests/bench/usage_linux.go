package main

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

// residentPeak returns the peak resident memory of this process in bytes, or 0 if it is unknown.
func residentPeak() float64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(status)) {
		var kib float64
		if n, _ := fmt.Sscanf(line, "VmHWM: %g kB", &kib); n == 1 {
			return kib * 1024
		}
	}
	return 0
}

// processorTime returns the processor time of all threads of this process.
func processorTime() time.Duration {
	const processCPUTime = 2 // CLOCK_PROCESS_CPUTIME_ID
	var t syscall.Timespec
	_, _, _ = syscall.Syscall(syscall.SYS_CLOCK_GETTIME, processCPUTime, uintptr(unsafe.Pointer(&t)), 0) // it cannot fail
	return time.Duration(t.Nano())
}
