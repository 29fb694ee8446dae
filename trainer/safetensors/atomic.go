package safetensors

import (
	"bufio"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// WriteFile writes a complete file with WriteFileAtomic and Write.
func WriteFile(path string, metadata map[string]string, tensors ...Tensor) error {
	return WriteFileAtomic(path, func(w io.Writer) error { return Write(w, metadata, tensors...) })
}

// WriteFileAtomic replaces the file at path by what write writes. Whoever opens
// path, also after a crash or a loss of power, finds the old file or the
// complete new one and never a part: the bytes go to a temporary file in the
// same directory, are flushed to the disk, and take the name in one step, which
// is flushed too where the system can do that. If anything fails, write's own
// error or panic included, the temporary file is removed and path is as it was;
// only where flushing the directory fails is the new file already in its place.
//
// A link at path is replaced, not followed. The writer is buffered and is not to
// be used after write returned. The error is one line; write's is wrapped.
func WriteFileAtomic(path string, write func(io.Writer) error) (err error) {
	dir := filepath.Dir(path)
	f, err := createTemp(dir)
	if err != nil {
		return fmt.Errorf("safetensors: writing %s: %w", path, err)
	}
	placed := false
	defer func() {
		if !placed { // an error, or a panic of write
			f.Close()
			os.Remove(f.Name())
		}
	}()
	fail := func(err error) error { return fmt.Errorf("safetensors: writing %s: %w", path, err) }

	w := bufio.NewWriterSize(f, chunk)
	if err := write(w); err != nil {
		return fail(err)
	}
	if err := w.Flush(); err != nil {
		return fail(err)
	}
	if err := f.Sync(); err != nil {
		return fail(err)
	}
	if err := f.Close(); err != nil { // before the rename: some systems do not rename open files
		return fail(err)
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return fail(err)
	}
	placed = true
	if err := syncDir(dir); err != nil {
		return fail(err)
	}
	return nil
}

// createTemp creates a new file in dir with the permissions that any new file of
// this user gets; os.CreateTemp would let nobody else read it.
func createTemp(dir string) (*os.File, error) {
	for {
		f, err := os.OpenFile(filepath.Join(dir, ".weir-"+rand.Text()+".tmp"), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
		if !errors.Is(err, fs.ErrExist) {
			return f, err
		}
	}
}
