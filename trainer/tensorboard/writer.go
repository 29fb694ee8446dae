package tensorboard

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Fields of event.proto and summary.proto: the number, shifted by the wire type.
const (
	eventWallTime    = 1<<3 | 1 // double
	eventStep        = 2 << 3   // int64
	eventFileVersion = 3<<3 | 2 // string
	eventSummary     = 5<<3 | 2 // message
	summaryValue     = 1<<3 | 2 // message, repeated
	valueTag         = 1<<3 | 2 // string
	valueSimple      = 2<<3 | 5 // float
)

// Scalar is a point of a plot. TensorBoard groups tags by what is before their first slash.
type Scalar struct {
	Tag   string  // bytes that are not UTF-8, which TensorBoard could not read, are replaced
	Value float64 // written as a float32; NaN and infinities are shown as such
}

// Writer writes events. It is for one goroutine at a time.
type Writer struct {
	w      io.Writer
	record []byte // reused
}

// New writes the version of the format to w, as the first record must have it.
func New(w io.Writer, at time.Time) (*Writer, error) {
	t := &Writer{w: w}
	t.begin(at)
	t.record = appendBytes(t.record, eventFileVersion, "brain.Event:2")
	return t, t.end()
}

// Create makes a new file of events in a folder, which it makes too. The caller closes the
// file.
func Create(folder string, at time.Time) (*Writer, *os.File, error) {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return nil, nil, err
	}
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	name := fmt.Sprintf("events.out.tfevents.%010d.%s.%d", at.Unix(), host, os.Getpid())
	file, err := os.OpenFile(filepath.Join(folder, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return nil, nil, err
	}
	t, err := New(file, at)
	if err != nil {
		file.Close() // The first error counts.
		return nil, nil, err
	}
	return t, file, nil
}

// Scalars writes the values of a step, in one record and one call of the io.Writer.
func (t *Writer) Scalars(step int64, at time.Time, values ...Scalar) error {
	t.begin(at)
	t.record = append(t.record, eventStep)
	t.record = binary.AppendUvarint(t.record, uint64(step))
	summary := 0
	for _, v := range values {
		n := valueSize(v)
		summary += 1 + uvarintSize(n) + n
	}
	t.record = append(t.record, eventSummary)
	t.record = binary.AppendUvarint(t.record, uint64(summary))
	for _, v := range values {
		t.record = append(t.record, summaryValue)
		t.record = binary.AppendUvarint(t.record, uint64(valueSize(v)))
		t.record = appendBytes(t.record, valueTag, v.tag())
		t.record = append(t.record, valueSimple)
		t.record = binary.LittleEndian.AppendUint32(t.record, math.Float32bits(float32(v.Value)))
	}
	return t.end()
}

const header = 8 + 4 // length and its checksum

// begin starts an event behind room for the header of its record.
func (t *Writer) begin(at time.Time) {
	t.record = append(t.record[:0], make([]byte, header)...)
	t.record = append(t.record, eventWallTime)
	t.record = binary.LittleEndian.AppendUint64(t.record, math.Float64bits(float64(at.UnixNano())/1e9))
}

// end writes the record.
func (t *Writer) end() error {
	binary.LittleEndian.PutUint64(t.record, uint64(len(t.record)-header))
	binary.LittleEndian.PutUint32(t.record[8:], masked(t.record[:8]))
	t.record = binary.LittleEndian.AppendUint32(t.record, masked(t.record[header:]))
	_, err := t.w.Write(t.record)
	return err
}

// masked is the checksum of the format: a CRC of data that holds CRCs would be weak.
func masked(data []byte) uint32 {
	sum := crc32.Checksum(data, castagnoli)
	return (sum>>15 | sum<<17) + 0xa282ead8
}

func appendBytes(to []byte, field byte, s string) []byte {
	to = binary.AppendUvarint(append(to, field), uint64(len(s)))
	return append(to, s...)
}

// valueSize is the length of a Summary.Value: its tag, and a float.
func valueSize(v Scalar) int {
	n := len(v.tag())
	return 1 + uvarintSize(n) + n + 1 + 4
}

func (s *Scalar) tag() string { return strings.ToValidUTF8(s.Tag, "\uFFFD") }

func uvarintSize(n int) int {
	var b [binary.MaxVarintLen64]byte
	return binary.PutUvarint(b[:], uint64(n))
}
