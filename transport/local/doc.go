// Package local joins the ranks of one process. A runner with several ranks creates its own [Links];
// tests and benchmarks can create them, too.
package local
