// Package layout plans the memory of a step before the step runs.
//
// A trainer gives a [Profile], which package schedule/runner/record makes, to its runner; [Make] lays out
// any plan and profile.
//
// The input is a plan, which lists the actions of every rank, and a [Profile], which lists what a call
// of every stage allocates, retains and releases for one microbatch. The output is, for every rank, a
// [memory.Layout]: an offset for every allocation of the step, so that the rank's arena never searches
// for free memory. The height of a layout is the highest end of a buffer. The peak, which is the largest number of
// bytes alive at the same time, is a lower bound on the height of every layout. A layout that meets the bound is
// optimal.
//
// # From a plan to offsets
//
// Each rank is laid out independently, in four steps:
//
//  1. Trace (trace.go, references.go, offload.go). The rank's program is executed on the profile. The
//     trace counts references as a runner does, but has no tensors. It logs a change for every birth, the
//     moment at which a buffer is allocated, and for every death, the moment at which its last reference is released.
//  2. Skip repeats (repeats.go), so that a step of a million microbatches costs as much as one of a
//     hundred.
//  3. Build a placement problem (problem.go): buffers with sizes and lifetimes. Package
//     memory/placement assigns the offsets.
//  4. Write the layout, with the owners of the bytes at the peak (result.go).
//
// Steps 1 to 3 are an attempt. A search (search.go) makes a few attempts, which differ in the length
// of their cycles, and keeps the lowest layout.
//
// # Cycles
//
// A program is a list of segments, and a segment is a list of actions that repeats, each time for
// later microbatches. After the warm-up, every repeat makes the same changes. The trace divides the
// repeats of a segment into five parts, of which only the third is not executed:
//
//	lead     repeats that differ, such as those in which a rank fills its look-ahead
//	cycle    a number of equal repeats (the length of the cycle), each with its own offsets
//	skipped  equal repeats, a multiple of the cycle; they use the offsets of the cycle in turn
//	rest     equal repeats, fewer than a cycle, which continue to use these offsets
//	tail     the last repeats, if they differ again because the source has run out of entries
//
// The cycle begins when a repeat ends in the state in which it began, with microbatches counted from
// the current repeat. The state contains everything that later changes depend on: the buffers in every
// slot, their references, and the next entry of the source. So by induction all later repeats make
// the same changes, until the entries run out (see recurrence for what this needs from the plan).
//
// Repeat k of a cycle uses the offsets of repeat k - (length of the cycle). So the layout has a finite
// table of offsets for any number of microbatches. A cycle must be at least as long as the longest life
// in it, because an offset is used again one cycle later. For example, a rank of 1F1B with four
// microbatches in flight executes "F of microbatch k+3, B of microbatch k" in repeat k. An activation
// that is saved in repeat 5 is released in repeat 8, so its life spans three repeats and part of a
// fourth. In repeats 6, 7 and 8 the same action saves activations while the first one is alive, so they
// need three other offsets. In repeat 9, the first offset is free again. The shortest cycle is four
// repeats.
//
// # The placement problem
//
// Time in the problem is the number of changes so far. The allocations that must share an offset, for
// example the births of one action in repeats 5, 9 and 13, are one buffer of the problem, whose
// lifetime has gaps: other buffers may use the bytes between a death and the next birth. Such a set of
// allocations is a group (see groups). An allocation that is born outside the cycle and its equal repeats
// is a group of its own, with one exception: an allocation that is born in the lead and is still alive in
// the cycle belongs to the group of the same birth in the cycle.
//
// Groups can make a layout higher than the bound. An allocator that does not plan would place the
// activation of repeat 9 in any free range. The plan has to place it at the offset of repeat 5, and
// other buffers may leave no range that is free in both repeats. If the longest life takes 4.1
// repeats, the shortest cycle has five sets of offsets, and the fifth set is unused for nine tenths of
// the time. Whether other buffers fit into it depends on their sizes.
//
// # Rotations
//
// A rotation (rotation.go) avoids this waste with a longer cycle. It links births of one size into a
// chain: each birth follows the death of the previous one, in the same repeat or a later one, and reuses
// its bytes. For example, let each repeat take 10 units of time. Buffer x is born at time 0 of every
// repeat and dies 14 units later. Buffer y, of the same size, is born at time 5 and dies 11 units later.
// With cycles of the shortest length, 2, both x and y have two offsets, so there are four. As a chain,
// the x of repeat 0 dies at 14, the y that is born at 15, in repeat 1, takes its bytes, and dies at 26.
// This is a run of the chain. Every repeat starts a run, which takes 26 units, less than three repeats.
// So three ranges of bytes (locations) suffice: the run that starts in repeat k uses location k mod 3.
// The cycle must be a multiple of 3 repeats, so that each cycle begins with the same location.
//
// Different chains have different numbers of locations, and the cycle must be a multiple of each of
// them. To achieve this for a given cycle, the number of locations of a chain is rounded up to a divisor
// of the cycle. A cycle is good if all its locations together need only slightly more bytes than are
// alive at the peak. A rotation is computed without a search and gives every birth of the cycle a
// location. Each location is a group of the problem.
//
// # The search
//
// An attempt is low enough if no other attempt can gain much: its height equals the bound, or it exceeds
// the peak by at most 1% and the program is large, or by at most 0.1% and no layout with buffers aligned
// to cache lines can meet the bound. The search stops at the first attempt that is low enough. In order,
// it tries:
//
//  1. The shortest cycles. If no two allocations share an offset, it skips 2 and 3, which would give
//     the same problem.
//  2. Up to four rotations, the shortest good cycle first.
//  3. The program without cycles, with every repeat traced and every allocation in a group of its own, if it is short
//     enough.
//  4. The best attempt so far again, with a longer search: first with smaller alignments, which need no
//     padding (align.go), if some buffers have padding; then with the same alignments, but only if every
//     allocation is a group of its own.
//
// Attempts 1 and 2 are given little work: enough for package placement to place all buffers about once,
// greedily. Attempt 3 is given more, because it is the only one that can place every allocation freely.
// Only the best attempt is worth a longer search. Work is counted in placements of buffers, not
// in time, so that the results depend only on the arguments.
//
// A proof by package placement that no layout is lower holds only for the groups of one attempt. It is
// reported as a proof for the program ([Certificate].Optimal) only if every allocation was a group of its
// own, or if the height equals the bound.
//
// # Coordinates
//
// Three kinds of coordinates describe when something happens, each for its own purpose:
//
//   - A position identifies an action of the whole program: segment, repeat and index in the body. The plan and the runner
//     count positions.
//   - A place identifies an action of the layout, which is finite: a repeat has the same places as the repeat
//     one cycle before. [memory.SegmentPlaces] maps positions to places. A birth of the layout is a place and
//     the number of the allocation there.
//   - Time, in lifetimes and in the placement problem, is the number of changes so far.
//
// # Limits
//
// Planning time grows with the number of microbatches if Config.Shapes gives the shape of each one, and
// for schedules whose microbatches in flight grow with their number (gpipe, breadth-first). With many
// microbatches of given shapes, [Profile.Plan] tries the envelope of these shapes first. Package runner runs
// layouts. budget.go and alternatives.go find plans that fit the budget if the given one does not.
package layout
