// Package layout plans the memory of a step before the step runs.
//
// Its input is a plan and a [Profile], which holds what every stage allocates, keeps and releases
// for one microbatch. The package plays the program of every rank with these profiles, as the
// runner would run it, and so learns the birth and the death of every buffer. Package placement
// then assigns offsets. The result for a rank is a [memory.Layout], which the rank's arena
// follows, and a certificate.
//
// From a profile to offsets, in reading order:
//
//   - play.go and ends.go play the program of a rank, action by action, and log the birth and the
//     death of every buffer. Package effects defines the effects of an action on memory, for the
//     runner too. ports.go defines the tensors that cross between stages.
//   - skip.go skips repeats of a segment that equal the previous ones, so that planning time does
//     not grow with microbatches. The played repeats are a lead of repeats that differ, a cycle of
//     equal repeats, whose offsets recur, and a tail of repeats that differ again.
//   - search.go chooses the cycles, and keeps the lowest layout that package placement returns.
//   - steady_state.go and rotation.go compute such cycles: cycles in which the allocations of one
//     size share a few locations.
//   - problem.go turns the lifetimes into a placement problem. The allocations that share an offset,
//     such as the same birth in every cycle, are one buffer of the problem, with gaps.
//   - segment.go and lay.go write the layout for the arena. peak.go finds the owners at the peak.
//     budget.go and alternatives.go find plans that fit if this one does not.
//
// There are three coordinates. A position is an action of the program: its segment, its repeat and
// its index in the body. A place is an action in the layout; equal repeats a cycle apart have the
// same places ([SegmentPlaces] maps positions to places). Time, in lifetimes and in the placement
// problem, is the number of changes so far; each birth and each death is a change.
//
// Planning time grows with microbatches if Config.Shapes gives the shape of each one, and for
// schedules whose microbatches in flight grow with their number (gpipe, breadth-first).
// The results depend on the arguments alone. Package runner records profiles and runs layouts.
package layout
