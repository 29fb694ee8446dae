// Package steplog is for programs that log by log/slog: it writes steps and microbatches of a
// run to a slog.Logger.
//
// [Step] is called with the result of each step; [Microbatches] makes a hook of the runner.
// Levels, formats and places are the logger's. The memory log (package memlog) is what the
// weir command reads; this is not.
package steplog
