//go:build !(darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd)

package outfile

import (
	"errors"
	"io/fs"
	"os"
)

// These systems have no locks that end with a process in the standard library: nothing
// is swept on them.
const (
	renamesOpen = false
	nonblocking = 0
)

var errLocked = errors.New("outfile: locked")

func lock(*os.File) error { return errors.ErrUnsupported }

func own(*os.File, fs.FileInfo) {}
