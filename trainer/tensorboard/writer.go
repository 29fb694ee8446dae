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

// Fields of event.proto and summary.proto: the field number, shifted left by 3 bits, and the wire type.
const (
	eventWallTime    = 1<<3 | 1 // double
	eventStep        = 2 << 3   // int64
	eventFileVersion = 3<<3 | 2 // string
	eventSummary     = 5<<3 | 2 // message
	summaryValue     = 1<<3 | 2 // message, repeated
	valueTag         = 1<<3 | 2 // string
	valueSimple      = 2<<3 | 5 // float
)

// Scalar is a point of a plot. TensorBoard groups tags by their text before the first slash.
type Scalar struct {
	Tag   string  // invalid UTF-8, which TensorBoard cannot read, is replaced
	Value float64 // written as a float32, which may be NaN or infinite
}

// Writer writes events. It is not safe for concurrent use.
type Writer struct {
	w                      io.Writer
	record, summary, value []byte // reused
}

// New returns a writer to w, and writes the first record, which contains the version of the format.
func New(w io.Writer, at time.Time) (*Writer, error) {
	t := &Writer{w: w}
	t.begin(at)
	t.record = appendBytes(t.record, eventFileVersion, "brain.Event:2")
	return t, t.end()
}

// Create creates a file of events in a folder, and the folder if it does not exist. The caller
// closes the file.
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
		file.Close() // the first error is returned
		return nil, nil, err
	}
	return t, file, nil
}

// Scalars writes the values of a step, in one record and one call of the io.Writer.
func (t *Writer) Scalars(step int64, at time.Time, values ...Scalar) error {
	t.begin(at)
	t.record = append(t.record, eventStep)
	t.record = binary.AppendUvarint(t.record, uint64(step))
	t.summary = t.summary[:0]
	for _, v := range values {
		t.value = appendBytes(t.value[:0], valueTag, strings.ToValidUTF8(v.Tag, "\uFFFD"))
		t.value = append(t.value, valueSimple)
		t.value = binary.LittleEndian.AppendUint32(t.value, math.Float32bits(float32(v.Value)))
		t.summary = appendBytes(t.summary, summaryValue, t.value)
	}
	t.record = appendBytes(t.record, eventSummary, t.summary)
	return t.end()
}

const header = 8 + 4 // length and its checksum

// begin starts an event, after room for the header of its record.
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

// masked returns the checksum of the format, which masks a CRC because the CRC of data that
// contains CRCs would be weak.
func masked(data []byte) uint32 {
	sum := crc32.Checksum(data, castagnoli)
	return (sum>>15 | sum<<17) + 0xa282ead8
}

// appendBytes appends a field with its length.
func appendBytes[T string | []byte](to []byte, field byte, text T) []byte {
	to = binary.AppendUvarint(append(to, field), uint64(len(text)))
	return append(to, text...)
}
