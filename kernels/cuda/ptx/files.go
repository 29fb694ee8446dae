package ptx

import "embed"

// Files has a .ptx for each group of operations, its source beside it, and hashes.txt with the
// hash of each source and of the PTX that was made of it.
//
//go:embed *.ptx *.cu *.h hashes.txt
var Files embed.FS
