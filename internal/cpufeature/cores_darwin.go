package cpufeature

import "syscall"

// performanceCores asks for the cores of the fastest level; Intel's have no levels.
func performanceCores() int {
	n, _ := syscall.SysctlUint32("hw.perflevel0.physicalcpu")
	return int(n)
}
