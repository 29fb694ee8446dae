// Package placement lays out buffers with known lifetimes: it gives them offsets in one range
// of memory, as low as possible.
//
// The problem is dynamic storage allocation: rectangles of given extent in time and in bytes
// are moved along the byte axis until no two overlap. It is NP-hard. A layout comes with a
// certificate: its height, a lower bound for all layouts (the maximum number of live bytes),
// the gap between the two, and whether the height is proven to be minimal.
//
// [Solve] first races greedy recipes: one that meets the bound ends the race, as happens for
// most training steps. It then tries, in turn, to reduce the gap with a ring buffer, with a
// ring buffer for long-lived buffers with all others around it, and by placing earlier the
// buffers that ended too high. If the time ends before the first recipe, it fills size classes
// in one sweep through time. Package exact continues the search from there. [Check] verifies a
// layout independently of these methods.
//
// The package is pure: integers in, integers out, the same for the same seed. Time has no unit;
// sizes and offsets are in bytes.
package placement
