package atomicfile

import (
	"bufio"
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
)

// Replace replaces the file at path with the output of write. A reader of path finds either the old file or the
// complete new one, even after a crash or a loss of power: the bytes are written to a temporary file in the
// same directory, flushed to disk, and renamed atomically; the directory is flushed too if the system can do
// that. If anything fails, including an error or panic of write, the temporary file is removed and path is
// unchanged. If only flushing the directory fails, the new file is already in place.
//
// The new file has the permissions of the old one, and its owner and group if the system allows
// that; access lists and extended attributes are not kept. Replace first removes the temporary
// files of killed writers of path. A link at path is replaced, not followed. The writer is
// buffered and must not be used after write has returned.
func Replace(path string, write func(io.Writer) error) error {
	return replace(path, write, (*os.File).Sync)
}

// replace is Replace, with the function that flushes a file or a directory to disk.
func replace(path string, write func(io.Writer) error, flush func(*os.File) error) error {
	sweep(path)
	old := regular(path)
	f, err := createTemp(path, old)
	if err != nil {
		return withPath(err, path)
	}
	placed := false
	defer func() {
		if !placed { // an error, or a panic of write
			f.Close()
			os.Remove(f.Name())
		}
	}()
	w := bufio.NewWriterSize(output{f, path}, 1<<16)
	if err := write(w); err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if err := copyAttributes(f, old); err != nil {
		return withPath(err, path)
	}
	if err := flush(f); err != nil {
		return withPath(err, path)
	}
	if !renamesOpen {
		if err := f.Close(); err != nil {
			return withPath(err, path)
		}
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return withPath(err, path)
	}
	placed = true
	if renamesOpen { // it stays locked until it has its name
		err = f.Close()
	}
	return errors.Join(withPath(err, path), flushDir(filepath.Dir(path), flush))
}

// output is a temporary file whose errors have the name of the final file.
type output struct {
	file *os.File
	path string
}

func (o output) Write(p []byte) (int, error) {
	n, err := o.file.Write(p)
	return n, withPath(err, o.path)
}

// withPath returns an error of the system with the name of the temporary file replaced by path.
func withPath(err error, path string) error {
	if at, ok := errors.AsType[*fs.PathError](err); ok {
		return &fs.PathError{Op: at.Op, Path: path, Err: at.Err}
	}
	if at, ok := errors.AsType[*os.LinkError](err); ok {
		return &fs.PathError{Op: at.Op, Path: path, Err: at.Err}
	}
	return err
}

// Writable returns the error that Write would return before writing anything. It leaves no file
// behind. It does not open pipes, devices and other special files, so it does not test the permission to write them.
func Writable(path string) error {
	if Standard(path) != nil {
		return nil
	}
	target, is := Regular(path)
	if !is {
		info, err := os.Stat(path)
		if err == nil && info.IsDir() {
			err = &fs.PathError{Op: "open", Path: path, Err: syscall.EISDIR}
		}
		return err
	}
	f, err := createTemp(target, regular(target))
	if err != nil {
		return withPath(err, path)
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// regular returns the description of the file at path, or nil if there is no regular file.
func regular(path string) fs.FileInfo {
	if info, err := os.Lstat(path); err == nil && info.Mode().IsRegular() {
		return info
	}
	return nil
}

// tempParts returns the folder of the temporary files of path, and the beginning and the end of their names. It
// cuts long names, because some file systems allow only about 140 bytes.
func tempParts(path string) (dir, prefix, suffix string) {
	dir, base := filepath.Dir(path), filepath.Base(path)
	return dir, "." + strings.ToValidUTF8(base[:min(len(base), 80)], "") + ".weir-", ".tmp"
}

// createTemp creates and locks a new file in the folder of path. If it is to replace a file,
// only this user can read it until it has the permissions of the old one; otherwise it has the
// permissions of any new file of this user.
func createTemp(path string, old fs.FileInfo) (*os.File, error) {
	dir, prefix, suffix := tempParts(path)
	perm := fs.FileMode(0o666)
	if old != nil {
		perm = 0o600
	}
	for {
		f, err := os.OpenFile(filepath.Join(dir, prefix+rand.Text()+suffix), os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
		switch {
		case errors.Is(err, fs.ErrExist):
		case err != nil:
			return nil, err
		case claimed(f):
			return f, nil
		default:
			f.Close()
		}
	}
}

// claimed locks a new file, and reports whether it still exists: between its creation and its
// lock, another process may have swept it. On a file system without locks nothing is swept.
func claimed(f *os.File) bool {
	if err := lock(f); errors.Is(err, errLocked) {
		return false
	}
	_, err := os.Lstat(f.Name())
	return !errors.Is(err, fs.ErrNotExist)
}

// sweep removes the temporary files of killed writers of path. Files of live writers are
// locked. Files that cannot be removed stay.
func sweep(path string) {
	dir, prefix, suffix := tempParts(path)
	entries, _ := os.ReadDir(dir)
	for _, entry := range entries {
		name := entry.Name()
		if !strings.HasPrefix(name, prefix) || !strings.HasSuffix(name, suffix) || !entry.Type().IsRegular() {
			continue
		}
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY|nonblocking, 0)
		if err != nil {
			continue
		}
		if lock(f) == nil {
			os.Remove(f.Name())
		}
		f.Close()
	}
}

// copyAttributes gives a file the permissions of another file and, if that is allowed, its owner.
func copyAttributes(f *os.File, old fs.FileInfo) error {
	if old == nil {
		return nil
	}
	copyOwner(f, old)
	if info, err := f.Stat(); err == nil && info.Mode().Perm() == old.Mode().Perm() {
		return nil // some file systems have one mode for all files, and reject changes
	}
	return f.Chmod(old.Mode().Perm())
}

// Flush flushes a directory, so that the names in it survive a loss of power. It does nothing
// for a directory that this user cannot read.
func Flush(dir string) error {
	if err := flushDir(dir, (*os.File).Sync); !errors.Is(err, fs.ErrPermission) {
		return err
	}
	return nil
}

// flushDir flushes a directory, so that a rename in it survives a loss of power. It ignores the
// error of a file system that cannot do that.
func flushDir(dir string, flush func(*os.File) error) error {
	if runtime.GOOS == "windows" { // Windows cannot open directories
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := flush(d); err != nil && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	return nil
}
