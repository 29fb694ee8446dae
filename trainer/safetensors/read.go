package safetensors

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
)

var (
	// ErrCorrupt is returned for a file that was truncated, was changed after it was written,
	// or is not in this format.
	ErrCorrupt = errors.New("safetensors: the file is damaged or not in this format")

	// ErrNoDigest is returned by Verify for a file without a digest.
	ErrNoDigest = errors.New("safetensors: the file has no digest")

	// ErrTensor is returned for a tensor that the file lacks, or has with another type or size
	// than requested, and for elements that the tensor does not have.
	ErrTensor = errors.New("safetensors: no such tensor")
)

func corrupt(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrCorrupt, fmt.Sprintf(format, args...))
}

// Reader reads tensors from a file whose header was checked. Its methods may be called
// concurrently.
type Reader struct {
	src      io.ReaderAt
	start    int64 // offset of the data
	size     int64 // bytes of the file
	infos    []Info
	index    map[string]int
	metadata map[string]string
}

// NewReader reads and checks the header of a file of size bytes. It does not read the data and
// does not verify the digest: see Verify. It borrows src for as long as the Reader is used. An
// error about the contents wraps ErrCorrupt.
func NewReader(src io.ReaderAt, size int64) (*Reader, error) {
	if size < 10 {
		return nil, corrupt("%d bytes, the smallest file has 10", size)
	}
	var length [8]byte
	if err := readAt(src, length[:], 0); err != nil {
		return nil, err
	}
	n, room := binary.LittleEndian.Uint64(length[:]), uint64(size-8)
	if n > MaxHeader {
		return nil, corrupt("a header of %d bytes, at most %d are allowed", n, MaxHeader)
	}
	if n > room {
		return nil, corrupt("a header of %d bytes in a file that has %d after the header's length", n, room)
	}
	header := make([]byte, n)
	if err := readAt(src, header, 8); err != nil {
		return nil, err
	}
	r := &Reader{src: src, start: 8 + int64(n), size: size}
	var err error
	if r.infos, r.metadata, err = parseHeader(header, size-r.start); err != nil {
		return nil, err
	}
	r.index = make(map[string]int, len(r.infos))
	for i := range r.infos {
		r.index[r.infos[i].Name] = i
	}
	return r, nil
}

// readAt fills b. It returns ErrCorrupt if the file is shorter than its stated size.
func readAt(src io.ReaderAt, b []byte, at int64) error {
	n, err := src.ReadAt(b, at)
	if n == len(b) {
		return nil
	}
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return corrupt("it ends at byte %d, expected %d more", at+int64(n), len(b)-n)
	}
	return fmt.Errorf("safetensors: reading at byte %d: %w", at, err)
}

// Metadata returns the file's metadata, including DigestKey, or nil. The map belongs to the
// reader and must not be changed.
func (r *Reader) Metadata() map[string]string { return r.metadata }

// Tensors returns the descriptions of all tensors, in the order of the data.
func (r *Reader) Tensors() []Info { return slices.Clone(r.infos) }

// Info returns the description of a tensor. The error wraps ErrTensor.
func (r *Reader) Info(name string) (Info, error) {
	i, ok := r.index[name]
	if !ok {
		return Info{}, fmt.Errorf("%w: %.80q", ErrTensor, name)
	}
	return r.infos[i], nil
}

// Bytes returns a tensor's values as stored in the file. The error wraps ErrTensor.
func (r *Reader) Bytes(name string) (*io.SectionReader, error) {
	t, err := r.Info(name)
	if err != nil {
		return nil, err
	}
	return io.NewSectionReader(r.src, r.start+t.Begin, t.End-t.Begin), nil
}

// Read reads a tensor into dst, whose type and length must match the tensor. The error wraps
// ErrTensor, wraps ErrCorrupt if the file has become shorter, or is an error of the source.
func Read[T Element](r *Reader, name string, dst []T) error {
	t, err := r.Info(name)
	if err != nil {
		return err
	}
	if count, want := t.count(), dtypeOf[T](); t.DType != want || count != int64(len(dst)) {
		return fmt.Errorf("%w: %.80q has %d elements of %s, but %d of %s were requested", ErrTensor, name, count, t.DType, len(dst), want)
	}
	return ReadRange(r, name, 0, dst)
}

// ReadRange reads len(dst) elements of a tensor into dst, from element first on. Its errors are those of Read.
func ReadRange[T Element](r *Reader, name string, first int, dst []T) error {
	t, err := r.Info(name)
	if err != nil {
		return err
	}
	want := dtypeOf[T]()
	if count := t.count(); t.DType != want || first < 0 || int64(first) > count-int64(len(dst)) {
		return fmt.Errorf("%w: %.80q has %d elements of %s, but %d of %s were requested from element %d on", ErrTensor, name, count, t.DType, len(dst), want, first)
	}
	size := want.Size()
	buf := make([]byte, min(chunk, len(dst)*size))
	for at := r.start + t.Begin + int64(first*size); len(dst) > 0; at += int64(len(buf)) {
		buf = buf[:min(len(buf), len(dst)*size)]
		if err := readAt(r.src, buf, at); err != nil {
			return err
		}
		decode(dst[:len(buf)/size], buf)
		dst = dst[len(buf)/size:]
	}
	return nil
}

// Verify reads the whole file and compares it with the digest in its metadata. The error is
// ErrNoDigest for a file without one, wraps ErrCorrupt if they differ, or is an error of the
// source.
func (r *Reader) Verify() error {
	digest, ok := r.metadata[DigestKey]
	if !ok {
		return ErrNoDigest
	}
	header := make([]byte, r.start)
	if err := readAt(r.src, header, 0); err != nil {
		return err
	}
	at := digestAt(header, digest)
	if want, err := hex.DecodeString(digest); err != nil || len(want) != sha256.Size || at < 0 {
		return corrupt("metadata %s is %.80q, expected %d digits where they were written", DigestKey, digest, 2*sha256.Size)
	}
	copy(header[at:], zeroDigest)
	hash := sha256.New()
	hash.Write(header)
	n, err := io.Copy(hash, io.NewSectionReader(r.src, r.start, r.size-r.start))
	if err != nil {
		return fmt.Errorf("safetensors: reading at byte %d: %w", r.start+n, err)
	}
	if got := hex.EncodeToString(hash.Sum(nil)); got != digest {
		return corrupt("its SHA-256 is %s, and %s was written with it", got, digest)
	}
	return nil
}

// File is a Reader over an open file, which Close closes.
type File struct {
	*Reader
	file *os.File
}

// Close closes the file. The Reader must not be used afterwards.
func (f *File) Close() error { return f.file.Close() }

// Open opens a file, checks its header, and, if the file has a digest, reads the whole file to
// verify it. A reader that expects a file written by Write also calls Verify, or looks for
// DigestKey, to detect a missing digest. An error about the contents wraps ErrCorrupt and states
// in one line the fault and the remedy.
func Open(path string) (*File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("safetensors: %w", err)
	}
	r, err := openReader(f)
	if err != nil {
		f.Close()
		if errors.Is(err, ErrCorrupt) {
			return nil, fmt.Errorf("%w; copy %s again, or use an earlier one", err, path)
		}
		return nil, fmt.Errorf("%w; in %s", err, path)
	}
	return &File{Reader: r, file: f}, nil
}

func openReader(f *os.File) (*Reader, error) {
	stat, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("safetensors: %w", err)
	}
	if !stat.Mode().IsRegular() {
		return nil, fmt.Errorf("safetensors: not a regular file")
	}
	r, err := NewReader(f, stat.Size())
	if err != nil {
		return nil, err
	}
	if err := r.Verify(); err != nil && err != ErrNoDigest {
		return nil, err
	}
	return r, nil
}
