// Package checkpoint is for stopping and resuming a run: it keeps on disk what the next step
// needs, written by one process or by several, and found whole or not at all.
//
// A checkpoint is a folder inside the folder that the trainer names:
//
//	latest                                     the name of the checkpoint that counts
//	step-00000800/
//	    rank-0-of-2-KX4BJ5.safetensors         a shard, written by rank 0
//	    rank-1-of-2-OLZQ2M.safetensors
//	    manifest.json                          what there is
//
// Every rank writes its shard with [WriteShard]. When all of them are there, one process
// writes the manifest with [Commit], and then the name in latest. Shards, manifest and
// latest are flushed to the disk and get their names when they are complete, in this order.
// So whoever opens the folder finds the checkpoint before or the new one, whenever a writer
// was killed or the power was lost, and no shard of a checkpoint is ever written over. What
// a killed writer has left is removed by the next Commit of its step, or by [Prune].
//
// The manifest is JSON. It has the step, the seed and the trainer's own metadata, and for
// each shard its file, its size, its SHA-256 (that of sha256sum), and the names, element
// types and shapes of its tensors. Its own SHA-256 is that of the file with 64 zeros in the
// place of the digest. Each tensor is in one shard; a shard is a file in the safetensors
// format, which other programs read as it is.
//
// A [Saver] says when a run should write a checkpoint, and keeps the last of them. [Newest]
// opens the newest one that is whole, also if the file latest was lost.
//
// [Open] reads the manifest. [Read] reads a tensor, and verifies its shard first where it is
// the first one of that shard: a rank that needs a part of the model reads the shards of
// that part alone. An error says which file is damaged and what is wrong with it.
package checkpoint
