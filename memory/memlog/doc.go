// Package memlog writes and reads the memory log of a training run: one line of JSON for each
// microbatch and rank.
//
// [New] returns a [Log], whose method Sample is a hook for the runner; [Read] reads logs.
//
// A [Log] writes a [memory.Sample] as one line in schema 1. Sizes are in bytes and times in nanoseconds. An
// absent key does not mean 0: its value is unknown, or it does not apply. The keys, in the order of a line:
//
//	key            meaning                                       present
//	schema         1
//	time           since the Unix epoch
//	step
//	rank           number among the ranks of all replicas
//	replica        the rank's replica                            if there are several replicas
//	microbatch
//	stage, action  of the last action before the line
//	live           allocated bytes
//	live_planned   planned live                                  if memory is planned
//	peak           highest live since the rank's previous line
//	peak_planned   planned peak                                  if memory is planned
//	far, far_peak  live and peak of far memory                   if the rank offloads saved state
//	far_planned    planned far_peak                              if far memory is planned
//	reserved       bytes that the allocator has reserved
//	excess         live bytes that the step does not account for
//	growth         change of excess since the previous line
//	leak_stage     stage of the call in which excess first grew  if growth is positive and the call is known
//	leak_name      name of that stage                            with leak_stage
//	leak_call      the call, in letters such as I                with leak_stage
//	leak_class     class of the bytes                            with leak_stage
//	weight         objective weight recorded so far in the step
//	wait_data      time spent waiting for the source since the previous line
//	every          n, if one line in n samples is written        if [Log.Every] is set
//	classes        live by class, without classes of 0 bytes
//	peak_classes   peak by class, without classes of 0 bytes     if the allocator reports it
//
// [File] is a file of limited size.
//
// Lines of [Log.PeakOwner] describe the owners of memory at the peak of a step: before the
// steps if memory is planned, otherwise after the step. If tensors are in FP8, lines of [Log.FP8] give
// their statistics after each step.
//
// [Read] reads such lines, the lines of a [Dump], and a minimal form that any other trainer can write: an
// object with step, rank, microbatch, allocated, reserved and peak, and possibly other keys.
//
// This is the module's only package that imports zerolog.
package memlog
