//go:build !amd64 || purego

package fmapeak

// GFLOPS returns 0, because this build has no loop to measure.
func GFLOPS(int) float64 { return 0 }
