//go:build darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd

package atomicfile

import (
	"io/fs"
	"os"
	"syscall"
)

// renamesOpen is whether a file can be renamed while it is open, and therefore while it is
// locked.
const renamesOpen = true

// nonblocking keeps an open from waiting for the other end of a pipe, and from following a link that has
// replaced a file.
const nonblocking = syscall.O_NONBLOCK | syscall.O_NOFOLLOW

// errLocked is the error of lock if another process holds the lock.
const errLocked = syscall.EWOULDBLOCK

// lock locks an open file for its writer. The system unlocks it when the file is closed or the
// process ends.
func lock(f *os.File) error {
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
}

// copyOwner gives a file the owner and the group of another file, or only the group, as far as this user is
// allowed to.
func copyOwner(f *os.File, old fs.FileInfo) {
	is, ok := old.Sys().(*syscall.Stat_t)
	if !ok {
		return
	}
	if f.Chown(int(is.Uid), int(is.Gid)) != nil {
		_ = f.Chown(-1, int(is.Gid)) // the file then belongs to this user
	}
}
