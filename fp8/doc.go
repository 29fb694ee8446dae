// Package fp8 is training in eight bits and fewer: number formats, recipes that say how
// tensors are scaled into them, and the scaling state that a recipe needs.
//
// A [Recipe] is an immutable value. Two kinds of scales follow from it. Those of
// [DelayedScaling] come from a history of steps: a [State] freezes them when a step
// begins, takes the greatest magnitude of every microbatch in any order, and rolls its
// history once, when the step ends. So no result depends on the schedule, and a
// recompute sees the scales of its first pass (L13, L14). All others depend on their own
// tensor alone, and keep nothing.
//
// Where the field disagrees the package decides, and says so where it does: scales of
// zero and infinity ([ScaleOf]), infinity in saturating casts ([Format.Encode]), what
// enters a history ([State.End]).
package fp8
