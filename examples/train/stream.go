package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
)

// stream is a file that is written bit by bit. Until it is whole its name ends in
// .partial, so that a file of the final name is never half-written.
type stream struct {
	path   string
	file   *os.File
	buffer *bufio.Writer
}

// openStream creates the file; it must not exist under its final name.
func openStream(path string) (*stream, error) {
	if _, err := os.Lstat(path); err == nil {
		return nil, fmt.Errorf("%s exists: name another folder with -run", path)
	}
	file, err := os.Create(path + ".partial")
	if err != nil {
		return nil, plain(err)
	}
	return &stream{path: path, file: file, buffer: bufio.NewWriterSize(file, 64<<10)}, nil
}

// Write writes to the buffer; an error comes back from every later call too.
func (s *stream) Write(p []byte) (int, error) { return s.buffer.Write(p) }

// flush writes what is in the buffer to the file.
func (s *stream) flush() error { return writing(s.path, s.buffer.Flush()) }

// finish makes the file whole and gives it its name, or removes it.
func (s *stream) finish() error {
	err := s.buffer.Flush()
	if err == nil {
		err = s.file.Sync()
	}
	if closed := s.file.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(s.path+".partial", s.path)
	}
	if err != nil {
		return errors.Join(writing(s.path, err), removed(s.path+".partial"))
	}
	return nil
}

// discard removes the file.
func (s *stream) discard() error {
	_ = s.file.Close() // What it says about lost bytes does not matter any more.
	return removed(s.path + ".partial")
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
