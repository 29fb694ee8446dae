// Package layout plans the memory of a step before the step runs.
//
// It takes a plan and a [StageProfile] for every stage, which says what the stage allocates,
// keeps and releases for one microbatch. It plays every rank's program with these profiles,
// as the runner would run it, which yields the birth and the death of every buffer. Package
// placement then assigns offsets. The result for a rank is a [memory.Layout], which the
// rank's arena follows, and a certificate.
//
// From a profile to offsets, in reading order:
//
//   - play.go and ends.go play the program of a rank, action by action, and record the
//     birth and the death of every buffer. Package effects defines what an action does to
//     memory, for the runner too; ports.go defines what crosses between stages.
//   - skip.go skips the repeats of a segment that equal those before them, so that
//     planning time does not grow with microbatches. It leaves a lead of repeats that differ,
//     a cycle of equal repeats, whose offsets recur, and a tail of repeats that differ again.
//   - problem.go turns the lifetimes into a placement problem. The same birth has the same
//     offset in every cycle, so these allocations are one buffer of the problem, with gaps.
//   - steady_state.go and rotation.go choose a cycle, no shorter, in which allocations of one size
//     share a few locations. Each location is one buffer, so a large program needs no search.
//   - search.go has package placement lay out the shortest cycle, such rotations, and a short
//     program without a cycle, and keeps the lowest layout.
//   - lay.go writes the layout for the arena, place by place; peak.go finds the owners at
//     the peak; budget.go and alternatives.go find plans that fit if this one does not.
//
// Time counts changes: each birth and each death is one. A place is an action of a repeat that
// is laid out; equal repeats a cycle apart share their places.
//
// Planning time grows with microbatches if Config.Shapes gives the shape of each one, and
// for schedules whose microbatches in flight grow with their number (gpipe, breadth-first).
// Everything here is a pure function; package runner records a profile and runs layouts.
package layout
