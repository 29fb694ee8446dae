// Package flightrec reads the dumps of PyTorch's flight recorder: the operations that every rank
// of a job issued, and their states.
//
// [Read] takes files, folders, globs and archives; a dump is a pickle or JSON in one of the
// versions 2.0 to 2.10, and may be compressed. Each file is reduced to a [Dump] before the next
// one is read, so memory grows only with the number of entries, by 40 bytes each.
//
// The package does not diagnose dumps; package cmd/weir/internal/hang does. It normalizes these things:
//
//   - A group's ranks become ranks of the job: "recv 0<-3" in a group of ranks 0, 4, 8 and 12 is
//     from rank 12.
//   - The dump does not record whether the individual operations of a batch have completed. They
//     get the state of the "coalesced" entry that closes the batch, and that entry is dropped.
//     Which entries belong to a batch, and what its number counts, depends on the version of
//     ProcessGroupNCCL.cpp.
//   - An operation that is retired, but not completed, has ended in Gloo, has timed out in NCCL, and
//     was only issued in a backend that reports no ends.
//   - pg_status identifies a group by its number in the process, pg_config by its name. Entries contain both,
//     and so connect them; a group without entries has no status. FlightRecorderHook writes the op_id of any
//     operation into pg_status.
//
// Files are untrusted: no code of a pickle runs, and no file can make the reader hold or unpack
// much more than its own size.
package flightrec
