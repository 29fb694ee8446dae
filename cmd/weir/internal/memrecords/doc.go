// Package memrecords writes the records of a memory log as CSV or as counters for Perfetto, and finds the
// first difference between the records of two logs.
package memrecords
