// Package draw shows when the actions of a plan run: as an SVG picture with one row for each
// rank and the memory that the rank holds below it, and as a trace for Perfetto and Chrome.
//
// A [Step] is a plan and the times of its actions, simulated ([simulate.Run]) or measured.
// The same step gives the same bytes.
package draw
