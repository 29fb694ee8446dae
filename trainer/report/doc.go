// Package report writes a page about a run: self-contained HTML with facts, plots and tables,
// which a browser shows without network access.
//
// A [Page] has facts at the top and figures below; Page.Write writes it. A [Figure] is one plot in inline
// SVG: stacked areas, bands between a minimum and a maximum, lines and dots over common axes. Colors
// follow the reader's preference for light or dark.
//
// The plot of a long run must not grow with the run. An [Envelope] keeps any number of points in
// a fixed number of buckets, with the minimum and the maximum of each, so that no peak is lost.
package report
