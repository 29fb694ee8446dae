package main

import "github.com/weir-ml/weir/internal/fmapeak"

// peak returns the most GFLOP/s that one core reaches just now.
func peak() float64 { return max(fmapeak.GFLOPS(16), fmapeak.GFLOPS(8)) }
