package offload

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/weir-ml/weir/memory"
)

// page is the page size of this package's ranges.
const page = 4096

// Heap returns a range on the Go heap, whose memory is allocated before the step that first needs
// it.
func Heap() memory.Range { return &heap{} }

type heap struct {
	bytes []byte
}

// Commit extends the range. It is called before the step begins, while no lane is copying.
func (h *heap) Commit(_, high int64) error {
	if more := high - int64(len(h.bytes)); more > 0 {
		h.bytes = append(h.bytes, make([]byte, more)...)
	}
	return nil
}

func (h *heap) Release() error {
	h.bytes = nil
	return nil
}

func (h *heap) ReadAt(p []byte, off int64) (int, error) { return copy(p, h.bytes[off:]), nil }

func (h *heap) WriteAt(p []byte, off int64) (int, error) { return copy(h.bytes[off:], p), nil }

// File returns a range in a new file in folder. Only the file's owner may read and write it. File unlinks
// the file, so that it does not outlive the process; on systems that cannot remove an open file, Release
// removes it. The range reserves its disk space before the step that first needs it.
func File(folder string) (memory.Range, error) {
	f, err := os.CreateTemp(folder, "weir-far-*")
	if err != nil {
		return nil, fmt.Errorf("offload: %w", err)
	}
	return &file{File: f, named: os.Remove(f.Name()) != nil}, nil
}

type file struct {
	*os.File
	named    bool  // the file could not be removed while open
	reserved int64 // the number of reserved bytes
}

// Commit reserves disk space.
func (f *file) Commit(_, high int64) error {
	if high <= f.reserved {
		return nil
	}
	if err := reserve(f.File, f.reserved, high); err != nil {
		return fmt.Errorf("offload: the disk of %s has no space for %d bytes: %w: make room, or give far memory another folder", f.Name(), high, errors.Join(err, f.Truncate(f.reserved)))
	}
	f.reserved = high
	return nil
}

func (f *file) Release() error {
	err := f.Close()
	if f.named {
		err = errors.Join(err, os.Remove(f.Name()))
	}
	return err
}

// fill reserves the bytes from low to high of a file by writing zeros.
func fill(w io.WriterAt, low, high int64) error {
	zeros := make([]byte, min(high-low, 1<<20))
	for low < high {
		n, err := w.WriteAt(zeros[:min(high-low, int64(len(zeros)))], low)
		if err != nil {
			return err
		}
		low += int64(n)
	}
	return nil
}

// The pages of both ranges are reserved by Commit and stay until Release.

func (*heap) Page() int64                   { return page }
func (*heap) Reserve(int64) error           { return nil }
func (*heap) Discard(int64, int64) error    { return nil }
func (*heap) Present(low, high int64) int64 { return high - low }

func (*file) Page() int64                   { return page }
func (*file) Reserve(int64) error           { return nil }
func (*file) Discard(int64, int64) error    { return nil }
func (*file) Present(low, high int64) int64 { return high - low }
