package cpufeature

import "syscall"

// performanceCores returns the number of cores of the fastest performance level, or 0 on Intel
// processors, which have no levels.
func performanceCores() int {
	n, _ := syscall.SysctlUint32("hw.perflevel0.physicalcpu")
	return int(n)
}
