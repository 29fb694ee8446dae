//go:build !(darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd)

package atomicfile

import (
	"errors"
	"io/fs"
	"os"
)

// On these systems the standard library has no locks that end with a process, so nothing is swept.
const (
	renamesOpen = false
	nonblocking = 0
)

var errLocked = errors.New("atomicfile: locked")

func lock(*os.File) error { return errors.ErrUnsupported }

func copyOwner(*os.File, fs.FileInfo) {}
