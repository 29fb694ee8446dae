// Package layout is for planning the memory of a step before it runs.
//
// It takes a plan, and for every stage a [StageProfile]: what the stage allocates, keeps
// and releases for one microbatch. It plays every rank's program with them, as the
// runner would run it, and so knows the birth and the death of every buffer. Package
// placement gives them offsets. The outcome for a rank is a [memory.Layout], which its
// arena obeys, and a certificate.
//
// The way from a profile to offsets, in the order in which to read it:
//
//   - play.go and ends.go play the program of a rank, action by action, and write down the
//     birth and the death of every buffer. What an action does to memory is in package
//     effects, which the runner obeys, too; ports.go says what crosses between stages.
//   - skip.go skips the repeats of a segment that are like those before them, so that planning
//     does not grow with microbatches. What is left of the segment is a cycle of repeats, which
//     has the same offsets again and again, with repeats before and behind it that differ.
//   - problem.go makes a placement problem of that: births that lie at one offset in every
//     cycle are one buffer with gaps.
//   - rotation.go chooses a cycle in which buffers of one size follow one another at few places,
//     each of which is one buffer then: so a large program needs no search.
//   - search.go tries the shortest cycle, such rotations, and a short program without a cycle,
//     has package placement lay them out, and keeps the lowest.
//   - lay.go writes the layout down, place by place, for the arena; peak.go says who has what
//     at the peak; budget.go and alternatives.go say what would fit where this does not.
//
// Planning grows with microbatches where a step is told the shape of every one, and for
// schedules that keep more the more there are (gpipe, breadth-first). Everything here is a pure
// function; package runner records a profile and runs layouts.
package layout
