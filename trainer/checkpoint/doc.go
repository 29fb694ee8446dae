// Package checkpoint lets a run stop and resume: it stores on disk the state that the next step needs. One or
// several processes write a checkpoint, and a reader finds either the whole checkpoint or none.
//
// A [Saver] writes the checkpoints of a run at intervals, and [Newest] opens the one to resume from.
//
// A checkpoint is a folder inside the folder that the trainer chooses:
//
//	latest                                     the name of the current checkpoint
//	step-00000800/
//	    rank-0-of-2-KX4BJ5.safetensors         a shard, written by rank 0
//	    rank-1-of-2-OLZQ2M.safetensors
//	    manifest.json                          the contents
//
// Every rank writes its shard with [WriteShard]. When all shards exist, one process calls
// [Commit], which writes the manifest and then latest. Shards, manifest and latest are flushed to
// disk and get their names when they are complete, in this order. Thus, whenever a writer is
// killed or power is lost, a reader finds either the previous checkpoint or the new one, and no
// shard of a checkpoint is ever overwritten. The files of a killed writer are removed by the next
// Commit of its step, or by [Prune] when the latest checkpoint is of a later step.
//
// The manifest is JSON. It contains the step, the seed and the trainer's own metadata, and for
// each shard its file, its size, its SHA-256 (as computed by sha256sum), and the names, element
// types and shapes of its tensors. The manifest's own SHA-256 is computed with 64 zeros in place
// of the digest. A shard holds whole tensors, or pieces of them ([Range]) if several ranks share
// a tensor: "w[0:10]" holds the first ten elements of w. Each element is in exactly one shard. A
// shard is a file in the safetensors format, which other programs can read directly.
//
// A [Saver] decides when a run should write a checkpoint, and keeps the last few. [Newest]
// opens the newest whole checkpoint, even if the file latest was lost.
//
// [Open] reads the manifest. [Read] reads a tensor, and [ReadRange] reads elements of one,
// however the shards split it. Both verify a shard before they first read it. A rank that needs
// only a part of the model reads only that part's shards. An error names the damaged file and
// describes the damage.
package checkpoint
