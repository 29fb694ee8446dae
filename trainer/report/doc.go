// Package report is for a page about a run: it writes self-contained HTML with facts, plots
// and tables, which a browser shows without any network.
//
// A [Page] has facts on top and figures below. A [Figure] is one plot in inline
// SVG: stacked areas, bands between a minimum and a maximum, lines and dots over
// common axes. Colours follow the reader's choice of light or dark.
//
// A plot of a long run must not grow with the run. An [Envelope] keeps any number
// of points in a fixed number of buckets, with the smallest and the largest value
// of each, so that no peak is lost by drawing fewer points than there were.
package report
