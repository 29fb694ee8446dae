// Package draw shows when the actions of a plan run: as an SVG picture, with a row for each rank
// and the memory of the rank below it, as an HTML page, and as a trace for Perfetto and Chrome.
//
// [Simulate] returns the [Step] of a plan, and Step.SVG, Step.HTML and Step.Trace write it.
//
// A [Step] is a plan and the times of its actions, simulated ([simulate.Run]) or measured.
// The same step always yields the same bytes.
package draw
