// Package placement gives buffers whose lifetimes are known their offsets in one
// range of memory, as low as possible.
//
// The problem is dynamic storage allocation: rectangles of given extent in time and
// in bytes are moved along the byte axis until none overlaps another one. It is
// NP-hard. A layout comes with a certificate: its height, the bound below which no
// layout can be (the most bytes alive at once), the gap between the two, and whether
// the height is proven to be the least.
//
// The package is pure: integers in, integers out, the same for the same seed. Time has
// no unit; sizes and offsets are bytes.
package placement
