package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
)

// stream is a file that is written bit by bit. Until it is whole its name ends in
// .partial, so that a file of the final name is never half-written. Where it cannot be
// written further, what was written before stays under that name.
type stream struct {
	path   string
	file   *os.File
	buffer *bufio.Writer
	empty  bool // what could be written is not a line
}

// openStream creates the file. Neither a whole one may be there nor what a run that was
// killed has left of one.
func openStream(path string) (*stream, error) {
	for _, name := range [...]string{path, path + partial} {
		if _, err := os.Lstat(name); err == nil {
			return nil, fmt.Errorf("%s exists: name another folder with -run", name)
		}
	}
	file, err := os.OpenFile(path+partial, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return nil, plain(err)
	}
	return &stream{path: path, file: file, buffer: bufio.NewWriterSize(file, 64<<10)}, nil
}

const partial = ".partial"

// Write writes to the buffer; an error comes back from every later call too.
func (s *stream) Write(p []byte) (int, error) { return s.buffer.Write(p) }

// flush writes what is in the buffer to the file.
func (s *stream) flush() error { return s.failed(s.buffer.Flush()) }

// finish makes the file whole and gives it its name. What cannot be made whole keeps the
// name that it has, and its lines.
func (s *stream) finish() error {
	err := first([]error{s.flush(), s.failed(s.file.Sync()), s.failed(s.file.Close())})
	if err == nil {
		err = s.failed(os.Rename(s.path+partial, s.path))
	}
	if s.empty {
		err = errors.Join(err, removed(s.path+partial))
	}
	return err
}

// failed says where the lines are that were written before an error; nil stays nil.
func (s *stream) failed(err error) error {
	if err == nil {
		return nil
	}
	err = writing(s.path, err)
	if size, unknown := cut(s.file); unknown == nil && size == 0 {
		s.empty = true
		return err
	}
	return fmt.Errorf("%w; what was written before is in %s", err, s.path+partial)
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

// discard removes the file.
func (s *stream) discard() error {
	_ = s.file.Close() // What it says about lost bytes does not matter any more.
	return removed(s.path + partial)
}

// removed removes a file that need not be there.
func removed(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return plain(err)
	}
	return nil
}

// errWriting is wrapped by the errors of files that could not be written.
var errWriting = errors.New("writing")

// writing says what could not be written, and what to do.
func writing(path string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w %s: %w: make room or name another place", errWriting, path, cause(err))
}

// plain takes the name of the system call out of an error about a path.
func plain(err error) error {
	var path *os.PathError
	if errors.As(err, &path) {
		return fmt.Errorf("%s: %w", path.Path, path.Err)
	}
	return err
}
