// Package placement is for laying out buffers whose lifetimes are known: it gives them offsets
// in one range of memory, as low as possible.
//
// The problem is dynamic storage allocation: rectangles of given extent in time and
// in bytes are moved along the byte axis until none overlaps another one. It is
// NP-hard. A layout comes with a certificate: its height, the bound below which no
// layout can be (the most bytes alive at once), the gap between the two, and whether
// the height is proven to be the least.
//
// [Solve] races greedy recipes first: one that meets the bound ends it, as it does for
// most training steps. The rest of the gap is worked on in turn by a queue that goes
// round in a ring, by such a ring of what lives long with all else around it, and by placing
// earlier what ended too high. If the time ends before the first of them, size classes
// are filled in one walk through time. Package exact searches on from there.
// [Check] says whether a layout is right, and knows nothing of how it was made.
//
// The package is pure: integers in, integers out, the same for the same seed. Time has
// no unit; sizes and offsets are bytes.
package placement
