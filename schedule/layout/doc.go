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
//     planning time does not grow with microbatches. A cycle of repeats remains, whose
//     offsets recur, with different repeats before and after it.
//   - problem.go turns the lifetimes into a placement problem: births with one offset in
//     every cycle are one buffer with gaps.
//   - rotation.go chooses a cycle in which buffers of one size share a few places in
//     rotation. Each place becomes one buffer, so a large program needs no search.
//   - search.go tries the shortest cycle, such rotations, and a short program without a
//     cycle, has package placement lay them out, and keeps the lowest layout.
//   - lay.go writes the layout for the arena, place by place; peak.go finds the owners at
//     the peak; budget.go and alternatives.go find plans that fit if this one does not.
//
// Planning time grows with microbatches if Config.Shapes gives the shape of each one, and
// for schedules whose microbatches in flight grow with their number (gpipe, breadth-first).
// Everything here is a pure function; package runner records a profile and runs layouts.
package layout
