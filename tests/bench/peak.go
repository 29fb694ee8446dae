package main

import "github.com/weir-ml/weir/internal/fmapeak"

// peak returns the maximum GFLOP/s that one core reaches at this moment.
func peak() float64 { return max(fmapeak.GFLOPS(16), fmapeak.GFLOPS(8)) }
