package cpufeature

import (
	"io/fs"
	"runtime"
	"strconv"
	"strings"
)

// Cores returns the number of cores that are worth a thread each: the performance cores that
// the process may use, if the system distinguishes them from other cores, or else all cores
// that it may use.
func Cores() int {
	if n := performanceCores(); n > 0 {
		return min(n, runtime.NumCPU())
	}
	return runtime.NumCPU()
}

// capable counts the cores with at least half the capacity of the largest one, from the files in
// which Linux reports the capacities of the devicetree or ACPI: a slower core delays those that
// share its work. It returns 0 if there are no such files or one of them cannot be read.
func capable(cpus fs.FS) int {
	names, _ := fs.Glob(cpus, "cpu[0-9]*/cpu_capacity")
	var all []int
	most := 0
	for _, name := range names {
		text, err := fs.ReadFile(cpus, name)
		n, fault := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil || fault != nil {
			return 0
		}
		all, most = append(all, n), max(most, n)
	}
	fast := 0
	for _, n := range all {
		if 2*n >= most {
			fast++
		}
	}
	return fast
}
