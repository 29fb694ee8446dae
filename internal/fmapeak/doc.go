// Package fmapeak is for benchmarks: it measures how many multiplications and additions a core
// can do, because a figure of a product means little on a shared machine without the peak of
// the same minute beside it.
package fmapeak
