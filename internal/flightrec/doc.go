// Package flightrec is for reading the dumps that PyTorch's flight recorder leaves behind:
// what every rank of a job had issued, and what of it had completed.
//
// [Read] takes files, folders, globs and archives; a dump is a pickle or JSON, of versions
// 2.0 to 2.10, and may be compressed. Each one is reduced to a [Dump] before the next
// one is read, so what is held grows with the entries alone, by 40 bytes for each.
//
// What a dump says is kept and not judged; package internal/hang does that. Three things are
// put right here, once:
//
//   - Ranks of a group become ranks of the job: "recv 0<-3" of a group of the ranks 0, 4, 8
//     and 12 is from rank 12.
//   - The transfers of a batch have no end of their own. They get the state of the entry
//     "coalesced" that closes the batch, and that entry goes.
//   - pg_status has numbers by a process's own number of a group, pg_config the groups by
//     their name. Entries have both and join them; without entries a group has no status.
//
// Files may come from strangers: nothing in a pickle is run, and no file can make the reader
// hold or unpack much more than its own size.
package flightrec
