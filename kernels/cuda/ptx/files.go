package ptx

import "embed"

// Files has a .ptx and its source for each group of operations, and hashes.txt with the hashes
// of each source and of the PTX compiled from it.
//
//go:embed *.ptx *.cu *.h hashes.txt
var Files embed.FS
