//go:build !(darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd)

package outfile

import (
	"errors"
	"io/fs"
	"os"
)

// On these systems the standard library has no locks that end with a process, so that nothing
// is swept.
const (
	renamesOpen = false
	nonblocking = 0
)

var errLocked = errors.New("outfile: locked")

func lock(*os.File) error { return errors.ErrUnsupported }

func copyOwner(*os.File, fs.FileInfo) {}
