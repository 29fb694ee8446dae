// Package dumptest is for tests that need dumps of a flight recorder: a [Rank] records
// operations with the numbers that PyTorch gives them, and writes them as a pickle or as JSON.
package dumptest
