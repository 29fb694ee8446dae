//go:build !amd64 || purego

package fmapeak

// GFLOPS returns 0: there are no vectors here.
func GFLOPS(int) float64 { return 0 }
