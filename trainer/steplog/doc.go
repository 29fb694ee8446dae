// Package steplog writes the steps and microbatches of a run to a slog.Logger.
//
// Call [Step] with the result of each step; [Microbatches] returns a hook for the runner. The logger determines
// levels, formats and destinations. The weir command reads the memory log (package memlog), not this log.
package steplog
