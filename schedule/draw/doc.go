// Package draw shows when the actions of a plan run: as a picture in SVG, one row for
// each rank with what it holds below it, and as a trace that Perfetto and Chrome open.
//
// A [Step] is a plan and the times of its actions, simulated ([simulate.Run]) or
// measured. The same step gives the same bytes.
package draw
