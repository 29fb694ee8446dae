//go:build !darwin && !linux

package atomicfile

// Free returns the number of bytes that this user may still write to the file system of a
// folder, and whether the system reports it.
func Free(string) (bytes int64, known bool) { return 0, false }
