//go:build !linux && !darwin

package cpufeature

func performanceCores() int { return 0 }
