package outfile

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// Partial ends the name of a stream that is not whole.
const Partial = ".partial"

// Stream is a file of lines that is written bit by bit. Until it is whole its name ends in
// Partial, so that a file of the final name is never half-written. If it cannot be
// written further, what was written before stays under that name, up to its last whole line.
type Stream struct {
	path   string
	file   *os.File
	buffer *bufio.Writer
	empty  bool // what could be written is not a line
}

// NewStream creates the file. It is fs.ErrExist where there is one, whole or what a writer
// that was killed has left of one.
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
	return &Stream{path: path, file: file, buffer: bufio.NewWriterSize(file, 64<<10)}, nil
}

// Path is the name that the file has when it is whole.
func (s *Stream) Path() string { return s.path }

// Write writes to the buffer; an error comes back from every later call too.
func (s *Stream) Write(p []byte) (int, error) { return s.buffer.Write(p) }

// Flush writes what is in the buffer to the file.
func (s *Stream) Flush() error { return s.failed(s.buffer.Flush()) }

// Finish makes the file whole and gives it its name. A file that cannot be made whole keeps the
// name that it has, and its lines.
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
	_ = s.file.Close() // What it says about lost bytes does not matter any more.
	return removed(s.path + Partial)
}

// failed says where the lines are that were written before an error; nil stays nil.
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

// cut ends a file behind its last whole line, and returns its size then.
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

// removed removes a file that need not be there.
func removed(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// ErrWriting is wrapped by the errors of files that could not be written.
var ErrWriting = errors.New("writing")

// Failed says to people what could not be written, and what to do; nil stays nil.
func Failed(path string, err error) error {
	if err == nil {
		return nil
	}
	if at, ok := errors.AsType[*fs.PathError](err); ok {
		err = at.Err
	} else if at, ok := errors.AsType[*os.LinkError](err); ok {
		err = at.Err
	}
	return fmt.Errorf("%w %s: %w: make room or name another place", ErrWriting, path, err)
}

// NewFolder makes a folder whose name is a time, below parent, and returns its path. Where
// there is one of this second, a number follows.
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
