// Package safetensors is for weights in the safetensors format: it reads and writes them.
//
// A file is the header's length (8 bytes, little-endian), the header (JSON,
// padded with spaces to a multiple of 8), and the data: every tensor's values,
// little-endian, in row-major order, one after the other without a gap. What
// [Write] writes is readable by every other reader of the format, is the same
// bytes for the same tensors, and carries its own SHA-256 in the header's
// metadata, because the format has no checksum.
//
// The digest, under the key [DigestKey], is the SHA-256 of the whole file with
// the digest's own 64 hexadecimal digits as zeros. It covers the header too: a
// flipped bit in a name or in the number of a step is as bad as one in a weight.
// Other readers see one more string of metadata, and a file that another tool
// wrote has none and is not checked.
//
// The reader treats a file as hostile. Nothing is allocated before its size was
// compared with the file's, every product is checked, and every byte of the data
// belongs to exactly one tensor.
package safetensors
