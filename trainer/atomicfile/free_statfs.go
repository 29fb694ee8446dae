//go:build darwin || linux

package atomicfile

import "syscall"

// Free returns the number of bytes that this user may still write to the file system of a
// folder, and whether the system reports it.
func Free(folder string) (bytes int64, known bool) {
	var s syscall.Statfs_t
	if syscall.Statfs(folder, &s) != nil {
		return 0, false
	}
	return int64(min(uint64(s.Bavail), 1<<40)) * int64(s.Bsize), true
}
