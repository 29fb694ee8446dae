// Package leaks finds leaks in a PyTorch memory snapshot: groups of allocations that grow with
// the number of microbatches, and blocks that keep memory reserved.
//
// [Find] follows every allocation of the trace to its end and groups the allocations by call
// stack and size class. It divides the trace into microbatches at the calls of one site, chosen because its
// calls recur once per microbatch. A group grows if allocations of at least three microbatches are still
// live at the end, and are older than any freed allocation of the group ever was; allocations that are
// merely in flight are not that old. A group of sizes that do not recur, and that has long added none, does
// not grow: it is a cache. The report gives the bytes that each microbatch adds, the first such microbatch,
// and the site of the allocations.
//
// It also reports what the trace lacks if the ring was full, and which blocks keep otherwise free
// segments reserved.
package leaks
