// Package fmapeak measures what a core can multiply and add, for benchmarks: a
// figure of a product means little on a shared machine without the peak of the
// same minute beside it.
package fmapeak
