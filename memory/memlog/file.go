package memlog

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
)

// File writes to a file of limited size. A write that would make a nonempty file larger than Most first starts
// a new one: Path becomes Path.1, Path.1 becomes Path.2, and so on up to Keep; what was in the last of them
// is lost. A log writes whole lines, so no line is split between files. The concatenation of the files, from
// the oldest to Path, is the end of the log. A File is safe for concurrent use.
type File struct {
	Path string
	Most int64 // bytes; 0 means no limit
	Keep int   // number of earlier files; 0 keeps none

	mu   sync.Mutex
	file *os.File
	size int64
}

// Write implements io.Writer. It appends to an existing file, or creates one.
func (f *File) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.file == nil {
		if err := f.open(os.O_APPEND); err != nil {
			return 0, err
		}
	}
	if f.Most > 0 && f.size > 0 && f.size+int64(len(p)) > f.Most {
		if err := f.rotate(); err != nil {
			return 0, err
		}
	}
	n, err := f.file.Write(p)
	f.size += int64(n)
	return n, err
}

func (f *File) open(flag int) error {
	file, err := os.OpenFile(f.Path, os.O_WRONLY|os.O_CREATE|flag, 0o666)
	if err != nil {
		return err
	}
	info, err := file.Stat()
	if err != nil {
		return errors.Join(err, file.Close())
	}
	f.file, f.size = file, info.Size()
	return nil
}

// rotate renames the files and starts a new one.
func (f *File) rotate() error {
	err := f.file.Close()
	f.file = nil
	name := func(i int) string {
		if i == 0 {
			return f.Path
		}
		return fmt.Sprintf("%s.%d", f.Path, i)
	}
	for i := f.Keep; i > 0 && err == nil; i-- {
		if err = os.Rename(name(i-1), name(i)); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	if err != nil {
		return err
	}
	return f.open(os.O_TRUNC)
}

// Close closes the file. A later Write opens it again.
func (f *File) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.file == nil {
		return nil
	}
	err := f.file.Close()
	f.file = nil
	return err
}
