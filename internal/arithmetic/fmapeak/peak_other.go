//go:build !amd64 || purego

package fmapeak

// GFLOPS returns 0, because the build has no vectors.
func GFLOPS(int) float64 { return 0 }
