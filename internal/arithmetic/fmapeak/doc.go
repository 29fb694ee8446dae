// Package fmapeak measures the peak rate of multiplications and additions of a core, for benchmarks:
// on a shared machine the speed of a product means little without the peak at the same time.
package fmapeak
