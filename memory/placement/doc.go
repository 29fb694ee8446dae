// Package placement lays out buffers with known lifetimes: it gives them offsets in one range
// of memory, as low as possible.
//
// Begin with [Solve], which returns the offsets of a [Problem] and a [Certificate] of how good they are.
//
// The problem is dynamic storage allocation: rectangles of given extent in time and in bytes
// are moved along the byte axis until no two overlap. It is NP-hard. A layout comes with a
// certificate: its height, a lower bound for all layouts (the maximum number of live bytes),
// the gap between the two, and whether the height is proven to be minimal.
//
// [Solve] races several methods and keeps the lowest layout. It stops as soon as a layout meets the bound
// (as happens for most training steps) or the capacity, or the work or time is used up. In order, it
// tries:
//
//  1. Greedy recipes (orders.go, greedy.go): each places the buffers one by one, in some order. If time
//     runs out before the first of them finishes, Solve instead makes one sweep through time, without a
//     search, in which buffers reuse the offsets of dead buffers of the same size class.
//  2. A ring buffer (ring.go): buffers are placed in order of birth, one above the other, starting again
//     from 0 when a limit is reached.
//  3. A ring buffer for only the long-lived buffers (long_lived.go). The others are placed greedily into
//     the remaining space.
//  4. The best recipes again (reorder.go): buffers that ended too high are placed earlier in the
//     next round.
//
// Methods 2 and 3 do not support gaps. Package internal/placement/exact searches exhaustively below the
// height of Solve's layout. [Check] verifies a layout independently of these methods.
//
// The package is pure: the result depends only on the problem and the options, unless the search runs out
// of time. Times in a problem have no unit; sizes and offsets are in bytes.
package placement
