package safetensors

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/weir-ml/weir/trainer/atomicfile"
)

const (
	// MaxHeader is the maximum size of a header in bytes, for reading and for writing.
	MaxHeader = 100_000_000
	// MaxName is the maximum length of a tensor's name in bytes.
	MaxName = 1024
	// DigestKey is the metadata key of the file's SHA-256.
	DigestKey = "weir.sha256"

	metadataKey = "__metadata__"
	chunk       = 1 << 16 // bytes converted at a time
)

// ErrInput is returned by Write for tensors or metadata that the format cannot represent.
var ErrInput = errors.New("safetensors: cannot be written")

var errLarge = fmt.Errorf("%w: the header would have more than %d bytes", ErrInput, MaxHeader)

// Tensor is a tensor to write: its name, its shape, and the source of its values.
type Tensor struct {
	name  string
	dtype DType
	shape []int
	count int // number of elements; -1 to use the shape
	// load returns the number of elements, and a function that converts elements from index
	// from on until b is full.
	load func() (count int, fill func(b []byte, from int), err error)
}

// Of describes a tensor over data, which is row-major and whose length must match the shape. An
// empty shape is a scalar. Both slices are borrowed, and must not change until Write has
// returned.
func Of[T Element](name string, shape []int, data []T) Tensor {
	t := Load(name, shape, func() ([]T, error) { return data, nil })
	t.count = len(data)
	return t
}

// Load is Of for values that are loaded while they are written, so that only one tensor at a
// time is in memory. Write calls load twice, and borrows each result until the next call of any
// tensor's load; both calls must return the same values.
func Load[T Element](name string, shape []int, load func() ([]T, error)) Tensor {
	return Tensor{
		name: name, dtype: dtypeOf[T](), shape: shape, count: -1,
		load: func() (int, func([]byte, int), error) {
			data, err := load()
			return len(data), func(b []byte, from int) { encode(b, data[from:]) }, err
		},
	}
}

// WriteFile replaces the file at path with the output of Write for these tensors, as atomicfile.Write does: a
// program that opens path finds either the old file or the complete new one, even after a crash or a loss of
// power. The new file has the permissions of the old one. Pipes and devices are written to directly.
func WriteFile(path string, metadata map[string]string, tensors ...Tensor) error {
	err := atomicfile.Write(path, func(w io.Writer) error { return Write(w, metadata, tensors...) })
	if err != nil && !errors.Is(err, ErrInput) {
		return fmt.Errorf("safetensors: %w", err)
	}
	return err
}

// Write writes a complete file. The order of the tensors does not matter: the bytes depend only on their names,
// types, shapes and values, and on the metadata. Every tensor is converted twice through one small buffer, once
// for the digest and once for w. Names and metadata must be valid UTF-8, and metadata must not contain
// DigestKey.
//
// If the arguments are invalid, Write writes nothing and returns an error that wraps ErrInput.
func Write(w io.Writer, metadata map[string]string, tensors ...Tensor) error {
	ordered := slices.Clone(tensors)
	slices.SortStableFunc(ordered, func(a, b Tensor) int {
		return cmp.Or(cmp.Compare(b.dtype.rank(), a.dtype.rank()), strings.Compare(a.name, b.name))
	})
	header, err := buildHeader(metadata, ordered)
	if err != nil {
		return err
	}
	buf := make([]byte, chunk)
	hash := sha256.New()
	hash.Write(header)
	if err := writeData(hash, ordered, buf); err != nil {
		return err
	}
	at := digestAt(header, zeroDigest)
	hex.Encode(header[at:], hash.Sum(nil))
	if _, err := w.Write(header); err != nil {
		return fmt.Errorf("safetensors: writing the header: %w", err)
	}
	return writeData(w, ordered, buf)
}

func writeData(w io.Writer, tensors []Tensor, buf []byte) error {
	for i := range tensors {
		t := &tensors[i]
		count, fill, err := t.load()
		if err != nil {
			return fmt.Errorf("safetensors: %q: %w", t.name, err)
		}
		if _, err := t.size(count); err != nil {
			return err
		}
		step := len(buf) / t.dtype.Size()
		for from := 0; from < count; from += step {
			b := buf[:min(step, count-from)*t.dtype.Size()]
			fill(b, from)
			if _, err := w.Write(b); err != nil {
				return fmt.Errorf("safetensors: writing %q: %w", t.name, err)
			}
		}
	}
	return nil
}

// zeroDigest is in the header while the digest is computed.
var zeroDigest = strings.Repeat("0", 2*sha256.Size)

// digestAt returns the offset of the digest's digits in a header written by Write, or -1. No
// JSON string can contain the text that it searches for, because of its quotes, and no tensor
// has a string as its value.
func digestAt(header []byte, digest string) int {
	key := `"` + DigestKey + `":"`
	if i := bytes.Index(header, []byte(key+digest+`"`)); i >= 0 {
		return i + len(key)
	}
	return -1
}

// buildHeader returns the length, the header and its padding, with zeros for the
// digest.
func buildHeader(metadata map[string]string, tensors []Tensor) ([]byte, error) {
	entries, room := map[string]string{DigestKey: zeroDigest}, MaxHeader
	for _, key := range slices.Sorted(maps.Keys(metadata)) {
		if key == DigestKey {
			return nil, fmt.Errorf("%w: metadata has the key %q, which is reserved for this package", ErrInput, DigestKey)
		}
		if !utf8.ValidString(key) || !utf8.ValidString(metadata[key]) {
			return nil, fmt.Errorf("%w: metadata %.80q is not UTF-8", ErrInput, key)
		}
		if room -= len(key) + len(metadata[key]); room < 0 { // before it is quoted
			return nil, errLarge
		}
		entries[key] = metadata[key]
	}
	b := append(make([]byte, 8), `{"`+metadataKey+`":`...)
	b = appendJSON(b, entries)
	seen := make(map[string]bool, len(tensors))
	var offset int64
	for _, t := range tensors {
		size, err := t.check()
		if err != nil {
			return nil, err
		}
		if seen[t.name] {
			return nil, fmt.Errorf("%w: two tensors named %.80q", ErrInput, t.name)
		}
		seen[t.name] = true
		if size > math.MaxInt64-offset {
			return nil, fmt.Errorf("%w: the tensors have more than 2^63 bytes", ErrInput)
		}
		b = append(appendJSON(append(b, ','), t.name), ':')
		b = appendJSON(b, struct {
			DType   DType    `json:"dtype"`
			Shape   []int    `json:"shape"`
			Offsets [2]int64 `json:"data_offsets"`
		}{t.dtype, append([]int{}, t.shape...), [2]int64{offset, offset + size}})
		offset += size
	}
	b = append(b, '}')
	for len(b)%8 != 0 {
		b = append(b, ' ')
	}
	if len(b)-8 > MaxHeader {
		return nil, errLarge
	}
	binary.LittleEndian.PutUint64(b, uint64(len(b)-8))
	return b, nil
}

// appendJSON appends a value whose strings must be valid UTF-8, so that Marshal cannot fail.
func appendJSON(b []byte, value any) []byte {
	text, _ := json.Marshal(value)
	return append(b, text...)
}

// Bytes returns the size of the tensors' values in a file, without the header. Tensors that
// Write rejects count as 0.
func Bytes(tensors ...Tensor) (n int64) {
	for i := range tensors {
		if size, err := tensors[i].check(); err == nil && n+size >= n {
			n += size
		}
	}
	return n
}

// check returns the size of t in bytes, or an error that wraps ErrInput if t cannot be written.
func (t *Tensor) check() (int64, error) {
	if fault := badName(t.name); fault != "" {
		return 0, fmt.Errorf("%w: tensor name %.80q %s", ErrInput, t.name, fault)
	}
	if t.load == nil {
		return 0, fmt.Errorf("%w: tensor %.80q was not made by Of or Load", ErrInput, t.name)
	}
	for _, dim := range t.shape {
		if dim < 0 {
			return 0, fmt.Errorf("%w: tensor %.80q has the shape %v, a dimension is negative", ErrInput, t.name, t.shape)
		}
	}
	return t.size(t.count)
}

// size returns the size of t in bytes, or an error unless it has as many elements as its shape
// implies. A negative count is unknown.
func (t *Tensor) size(count int) (int64, error) {
	size, ok := byteSize(t.dtype, t.shape)
	if !ok || count >= 0 && size != int64(count)*int64(t.dtype.Size()) {
		return 0, fmt.Errorf("%w: tensor %.80q has the shape %v and %d elements", ErrInput, t.name, t.shape, count)
	}
	return size, nil
}

// badName describes the fault of a tensor's name, or returns "".
func badName(name string) string {
	switch {
	case name == "":
		return "is empty"
	case len(name) > MaxName:
		return fmt.Sprintf("has %d bytes, at most %d are allowed", len(name), MaxName)
	case name == metadataKey:
		return "is reserved"
	case !utf8.ValidString(name):
		return "is not UTF-8"
	}
	return ""
}
