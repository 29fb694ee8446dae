// Package leaks is for finding a leak in a PyTorch memory snapshot: what grows with
// microbatches, and what keeps memory reserved.
//
// [Find] follows every allocation of the trace to its end and groups them by call
// stack and size. It cuts the trace into microbatches: at the calls of one site that
// recurs as evenly as they do. A group grows when allocations of at least three
// microbatches are still live in the end, and older than any of the group that was
// freed ever became: what is only in flight is not that old. The report says how many
// bytes each microbatch adds, since which one, and where they were allocated.
//
// It also says what the trace cannot tell, where the ring was full, and which blocks
// keep segments that are free otherwise.
package leaks
