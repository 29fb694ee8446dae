// Package draw is for looking at a plan: it draws when the actions run as a picture in SVG,
// one row for each rank with the memory that it holds below it, and as a trace that Perfetto
// and Chrome open.
//
// A [Step] is a plan and the times of its actions, simulated ([simulate.Run]) or
// measured. The same step gives the same bytes.
package draw
