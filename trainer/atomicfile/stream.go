package atomicfile

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/weir-ml/weir/internal/formats/diagnostic"
)

// Partial is the suffix of the name of an incomplete stream.
const Partial = ".partial"

// Stream is a file of lines that is written incrementally. Its name ends in Partial until it is complete, so
// that a file with the final name is never half-written. If writing fails, the lines written so far remain
// under the partial name, up to the last whole line.
type Stream struct {
	path   string
	file   *os.File
	buffer *bufio.Writer
	empty  bool // writing failed before the first whole line
}

// NewStream creates the file under its partial name. The error wraps fs.ErrExist if there is
// already a complete file, or a partial one, such as a killed writer leaves.
func NewStream(path string) (*Stream, error) {
	for _, name := range [...]string{path, path + Partial} {
		if _, err := os.Lstat(name); err == nil {
			return nil, &fs.PathError{Op: "create", Path: name, Err: fs.ErrExist}
		}
	}
	file, err := os.OpenFile(path+Partial, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return nil, err
	}
	_ = lock(file) // so that SetAside does not move the file; without locks, SetAside cannot tell
	return &Stream{path: path, file: file, buffer: bufio.NewWriterSize(file, 64<<10)}, nil
}

// SetAside moves the files of a folder whose names have one of the prefixes, such as those of a killed writer,
// into a new subfolder: earlier-1, or the next free number. If there are no such files, it does nothing. It
// returns an error if another process is still writing one of them.
func SetAside(dir string, prefixes ...string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var names []string
	for _, entry := range entries {
		has := func(prefix string) bool { return strings.HasPrefix(entry.Name(), prefix) }
		if entry.Type().IsRegular() && slices.ContainsFunc(prefixes, has) {
			names = append(names, entry.Name())
		}
	}
	for _, name := range names {
		file, err := os.OpenFile(filepath.Join(dir, name), os.O_RDONLY|nonblocking, 0)
		if err != nil {
			return err
		}
		locked := errors.Is(lock(file), errLocked)
		if _ = file.Close(); locked { // it was only opened for its lock
			return fmt.Errorf("%s is being written by another process", filepath.Join(dir, name))
		}
	}
	if len(names) == 0 {
		return nil
	}
	for n := 1; ; n++ {
		aside := filepath.Join(dir, "earlier-"+strconv.Itoa(n))
		err := os.Mkdir(aside, 0o777)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		for _, name := range names {
			if err == nil {
				err = os.Rename(filepath.Join(dir, name), filepath.Join(aside, name))
			}
		}
		return err
	}
}

// Path returns the name that the file has when it is complete.
func (s *Stream) Path() string { return s.path }

// Write writes to the buffer. After an error, every later call returns it too.
func (s *Stream) Write(p []byte) (int, error) { return s.buffer.Write(p) }

// Flush writes the buffer to the file.
func (s *Stream) Flush() error { return s.failed(s.buffer.Flush()) }

// Finish completes the file and gives it its final name. On failure the file keeps its partial
// name and its whole lines; a file without a whole line is removed.
func (s *Stream) Finish() error {
	err := s.Flush()
	for _, next := range [...]func() error{s.file.Sync, s.file.Close} {
		if e := next(); err == nil {
			err = s.failed(e)
		}
	}
	if err == nil {
		err = s.failed(os.Rename(s.path+Partial, s.path))
	}
	if s.empty {
		err = errors.Join(err, removed(s.path+Partial))
	}
	return err
}

// Discard removes the file.
func (s *Stream) Discard() error {
	_ = s.file.Close() // errors about lost bytes no longer matter
	return removed(s.path + Partial)
}

// failed truncates the file after its last whole line, and adds the location of the lines to an error, if there
// are any. It returns nil for nil.
func (s *Stream) failed(err error) error {
	if err == nil {
		return nil
	}
	err = Failed(s.path, err)
	if size, unknown := cut(s.file); unknown == nil && size == 0 {
		s.empty = true
		return err
	}
	return fmt.Errorf("%w; what was written before is in %s", err, s.path+Partial)
}

// cut truncates a file after its last whole line, and returns the new size.
func cut(file *os.File) (size int64, err error) {
	if size, err = file.Seek(0, io.SeekEnd); err != nil {
		return 0, err
	}
	for tail := make([]byte, 4<<10); size > 0; {
		tail = tail[:min(size, int64(len(tail)))]
		if _, err := file.ReadAt(tail, size-int64(len(tail))); err != nil {
			return 0, err
		}
		if end := bytes.LastIndexByte(tail, '\n') + 1; end > 0 {
			size -= int64(len(tail) - end)
			break
		}
		size -= int64(len(tail))
	}
	return size, file.Truncate(size)
}

// removed removes a file that may not exist.
func removed(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// ErrWriting is wrapped by the errors of files that could not be written.
var ErrWriting = errors.New("writing")

// Failed adds to an error the name of the file that could not be written, and a remedy. It returns nil for nil.
func Failed(path string, err error) error {
	if err == nil {
		return nil
	}
	if limited := diagnostic.Limit(cause(err)); errors.Is(err, syscall.EMFILE) {
		return fmt.Errorf("%w %s: %w", ErrWriting, path, limited)
	}
	return fmt.Errorf("%w %s: %w: make room or name another place", ErrWriting, path, cause(err))
}

// Emit writes to the file at path as Write does, or to stdout if path is "-". It wraps the errors of
// Write as Failed does.
func Emit(path string, stdout io.Writer, write func(io.Writer) error) error {
	if path == "-" {
		return write(stdout)
	}
	return Failed(path, Write(path, write))
}

// NewFolder creates a folder in parent, named after the time now to the second, and returns its path. If that
// name is taken, NewFolder appends a number.
func NewFolder(parent string, now time.Time) (string, error) {
	if err := os.MkdirAll(parent, 0o777); err != nil {
		return "", err
	}
	name := filepath.Join(parent, now.Format("2006-01-02T15-04-05"))
	path := name
	for n := 2; ; n++ {
		if err := os.Mkdir(path, 0o777); !errors.Is(err, fs.ErrExist) {
			return path, err
		}
		path = name + "-" + strconv.Itoa(n)
	}
}
