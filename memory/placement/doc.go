// Package placement lays out buffers with known lifetimes: it gives them offsets in one range
// of memory, as low as possible.
//
// The problem is dynamic storage allocation: rectangles of given extent in time and in bytes
// are moved along the byte axis until no two overlap. It is NP-hard. A layout comes with a
// certificate: its height, a lower bound for all layouts (the maximum number of live bytes),
// the gap between the two, and whether the height is proven to be minimal.
//
// [Solve] races several methods and keeps the lowest layout. As soon as a layout meets the bound
// (as happens for most training steps) or the capacity, or the work or time is used up, it stops. In
// order, it tries:
//
//  1. Greedy recipes (orders.go, greedy.go): each places the buffers one by one, in some order.
//     If the time ends before the first of them does, Solve instead reuses the offsets of dead
//     buffers of the same size class, in one sweep through time, which needs no search.
//  2. A ring buffer (ring.go): buffers are placed in order of birth, one above the other, and from
//     0 again when a limit is reached.
//  3. A ring buffer of the long-lived buffers only (long_lived.go). The others are placed greedily
//     into the remaining space.
//  4. The best recipes again (reorder.go): buffers that ended too high are placed earlier in the
//     next round.
//
// Methods 2 and 3 do not support gaps. Package exact searches exhaustively below the height of
// Solve's layout. [Check] verifies a layout independently of these methods.
//
// The package is pure: the result depends only on the problem and the options, unless the time
// ends the search. Time in a problem has no unit; sizes and offsets are in bytes.
package placement
