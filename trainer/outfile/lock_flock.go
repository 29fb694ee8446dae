//go:build darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd

package outfile

import (
	"io/fs"
	"os"
	"syscall"
)

// renamesOpen says that a file can be renamed while it is open, and so locked.
const renamesOpen = true

// nonblocking keeps an open from waiting for the other end of a pipe, and from following
// a link that took the place of a file.
const nonblocking = syscall.O_NONBLOCK | syscall.O_NOFOLLOW

// errLocked is the error of lock where somebody else has the lock.
const errLocked = syscall.EWOULDBLOCK

// lock locks an open file for its writer. The system unlocks it when the file is closed,
// or the process ends in whatever way.
func lock(f *os.File) error {
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
}

// own gives a file the owner and the group of another one, or only the group, where this
// user may do that.
func own(f *os.File, old fs.FileInfo) {
	is, ok := old.Sys().(*syscall.Stat_t)
	if !ok {
		return
	}
	if f.Chown(int(is.Uid), int(is.Gid)) != nil {
		_ = f.Chown(-1, int(is.Gid)) // It is this user's file then.
	}
}
