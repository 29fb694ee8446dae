// Package safetensors reads and writes weights in the safetensors format.
//
// [WriteFile] writes the tensors that [Of] and [Load] describe; [Open] opens a file, and [Read] copies one
// tensor out of it.
//
// A file is the header's length (8 bytes, little-endian), the header (JSON, padded with spaces to a multiple of
// 8), and the data: every tensor's values, little-endian, in row-major order, one after the other without a
// gap. The output of [Write] is readable by every other reader of the format, is identical for identical
// tensors and metadata, and carries its own SHA-256 in the header's metadata, because the format has no
// checksum.
//
// The digest, under the key [DigestKey], is the SHA-256 of the whole file with the digest's own
// 64 hexadecimal digits as zeros. It covers the header too: a flipped bit in a name or in the
// number of a step is as bad as one in a weight. Other readers see one more string of metadata;
// a file that another tool wrote has no digest and is not checked.
//
// The reader treats a file as hostile. It compares every size with the file's before it
// allocates, checks every product for overflow, and requires that every byte of the data
// belongs to exactly one tensor.
package safetensors
