// Package memlog is for the memory log of a training run: it writes and reads one line of JSON
// for each microbatch and rank.
//
// A [Log] writes a [memory.Sample] as one line in schema 1:
//
//	schema time step rank microbatch stage action live peak reserved excess
//	growth weight wait_data, and classes, an object of the bytes by class, of those
//	that have any
//
// Sizes are bytes, times nanoseconds, time since the Unix epoch; peak is the
// highest level since this rank's previous line. [Log.Every] thins a log out, and its lines
// have every; [File] is a file of limited size. live_planned and peak_planned,
// which follow live and peak, belong to schema 1 as well; they are absent until
// memory is planned, and absent is not 0. So does peak_classes at the end, which is peak
// by class; it is absent where the allocator does not say.
//
// Lines of [Log.PeakOwner] say who has what at the peak of a step: before the steps where
// memory is planned, behind the step where it is not. Where tensors are in FP8, lines of
// [Log.FP8] say after each step what they met.
//
// [Read] reads such lines, the lines of a [Dump], and the minimal form that any
// other trainer can write: an object with step, rank, microbatch, allocated,
// reserved and peak, and whatever else that trainer wants to say.
//
// This package is the only one of the module that imports zerolog.
package memlog
