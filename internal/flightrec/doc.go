// Package flightrec reads the dumps of PyTorch's flight recorder: the operations that every rank
// of a job issued, and their states.
//
// [Read] takes files, folders, globs and archives; a dump is a pickle or JSON, of versions
// 2.0 to 2.10, and may be compressed. Each one is reduced to a [Dump] before the next
// one is read, so memory grows only with the entries, by 40 bytes for each.
//
// The package does not diagnose dumps; package internal/hang does. It normalizes three things:
//
//   - Ranks of a group become ranks of the job: "recv 0<-3" of a group of the ranks 0, 4, 8
//     and 12 is from rank 12.
//   - The transfers of a batch have no completion of their own. They get the state of the entry
//     "coalesced" that closes the batch, and that entry is dropped.
//   - pg_status identifies a group by its number in the process, pg_config by its name. Entries
//     have both and join them; without entries a group has no status.
//
// Files are untrusted: no code of a pickle runs, and no file can make the reader hold or unpack
// much more than its own size.
package flightrec
