package snapshot

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/weir-ml/weir/internal/formats/pickle"
	"github.com/weir-ml/weir/internal/formats/unzip"
)

// ErrPickle is wrapped by the errors that Read returns for a file that is not a pickle, would run code,
// or exceeds the limits.
var ErrPickle = errors.New("snapshot: not a pickle of plain data")

// ErrSchema is wrapped by the errors that Read returns for a pickle that is not a memory snapshot.
var ErrSchema = errors.New("snapshot: not a memory snapshot")

// Limits bounds the resources that reading a file may use. The zero value is suitable for untrusted
// files.
type Limits struct {
	// Memory is the approximate number of bytes that Read may use; 0 means 4 GiB. For a small file, the
	// limit is lower: 16 MiB plus 16 times the size of the file.
	Memory int64
}

// Read reads a snapshot, which may be compressed with gzip. It keeps trace entries with unknown actions, and
// ignores unknown keys. It reads pickle protocols 2 to 5, as written by PyTorch 2.1 and later.
func Read(r io.Reader, limits Limits) (*Snapshot, error) {
	file := bufio.NewReaderSize(r, unzip.Buffer)
	head, _ := file.Peek(2)
	in, err := unzip.Open(file)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrPickle, err)
	}
	data, err := pickle.Read(in, pickle.Options{
		Memory: limits.Memory, Limit: ": raise Limits.Memory for a file that you trust", Err: ErrPickle,
		Content: "snapshot", Writer: "torch.cuda.memory._dump_snapshot",
	})
	if err != nil && string(head) == "\x1f\x8b" {
		return nil, fmt.Errorf("%w; the bytes are those that gzip unpacks", err)
	}
	if err != nil {
		return nil, err
	}
	d := decoder{Data: data, stacks: map[uint32][]Frame{}}
	s := d.snapshot(data.Top())
	if d.err != nil {
		return nil, d.err
	}
	return s, nil
}

// decoder builds a snapshot from the values of a pickle. It keeps the first error, and returns
// empty values after it.
type decoder struct {
	*pickle.Data
	stacks map[uint32][]Frame // by Ref of the list in the file
	sum    int64              // of all sizes read so far
	err    error
}

func (d *decoder) snapshot(v pickle.Value) *Snapshot {
	s := &Snapshot{}
	at := func(part string) path { return path{list: part, index: -1} }
	found := 0
	d.dict(v, at("the top"))
	for key, v := range d.Pairs(v) {
		switch key {
		case "segments":
			found++
			s.Segments = decodeList(d, v, at(key), 128, d.segment)
		case "device_traces":
			found++
			s.Traces = decodeList(d, v, at(key), 24, d.trace)
		case "allocator_settings":
			d.fill(v, at(key), s.Settings.fields())
		}
	}
	if found < 2 {
		d.fault(at("the top"), "a snapshot has segments and device_traces, and this has not: write it with torch.cuda.memory._dump_snapshot")
	}
	return s
}

func (d *decoder) trace(v pickle.Value, at path, trace *[]TraceEntry) {
	*trace = decodeList(d, v, at, 80, func(v pickle.Value, at path, e *TraceEntry) { d.fill(v, at, e.fields("addr", "device_free")) })
}

func (d *decoder) segment(v pickle.Value, at path, s *Segment) {
	d.fill(v, at, s.fields())
	next := s.Address
	for i := range s.Blocks {
		b := &s.Blocks[i]
		if b.Address == 0 { // snapshots from PyTorch 2.1 do not have addresses
			b.Address = next
		}
		next = b.Address + b.Size
	}
}

func (d *decoder) block(v pickle.Value, at path, b *Block) {
	b.Requested, b.State = -1, Inactive
	d.fill(v, at, b.fields())
	if b.Requested < 0 {
		b.Requested = b.Size
	}
}

// fill sets fields from a dict. It ignores keys that match no field.
func (d *decoder) fill(v pickle.Value, at path, fields []field) {
	d.dict(v, at)
	for key, v := range d.Pairs(v) {
		at.key = key
		for _, f := range fields {
			if f.key == key {
				d.field(f.value, v, at)
			}
		}
	}
}

func (d *decoder) field(to any, v pickle.Value, at path) {
	switch to := to.(type) {
	case *int:
		*to = int(d.number(v, at))
	case *int64:
		*to = d.number(v, at)
	case *size:
		*to = size(d.bytes(v, at))
	case *requested:
		if *to = requested(d.number(v, at)); *to > 0 {
			*to = requested(d.bytes(v, at))
		}
	case *split:
		*to = split(max(0, d.number(v, at)))
	case *bool:
		*to = v.Kind == pickle.Boolean && v.Bits != 0
	case *string:
		*to = d.text(v, at)
	case *Action:
		*to = Action(d.text(v, at))
	case *small:
		*to = d.text(v, at) == "small"
	case *State:
		switch s := d.text(v, at); s {
		case "active_awaiting_free", string(Pending): // both names have been in use
			*to = Pending
		case string(Live), string(Inactive):
			*to = State(s)
		default:
			d.fault(at, "%q, where a state belongs", s)
		}
	case *[2]int64:
		if pair := d.items(v, at); len(pair) == 2 {
			*to = [2]int64{d.number(pair[0], at), d.number(pair[1], at)}
		}
	case *[]Frame:
		*to = d.frames(v, at)
	case *[]Block:
		*to = decodeList(d, v, at, 88, d.block)
	}
}

// frames returns a list of frames. A list that occurs repeatedly in the file becomes one shared slice.
func (d *decoder) frames(v pickle.Value, at path) []Frame {
	if v.Kind == pickle.Null || d.err != nil {
		return nil
	}
	if frames, ok := d.stacks[v.Ref]; ok && v.Kind == pickle.List {
		return frames
	}
	frames := decodeList(d, v, at, 40, func(v pickle.Value, at path, f *Frame) { d.fill(v, at, f.fields()) })
	if d.err == nil {
		d.stacks[v.Ref] = frames
	}
	return frames
}

// path is the location of a value, for errors. It is formatted only when an error occurs.
type path struct {
	list  string
	index int    // -1 if it is not an element
	key   string // of a field of the element, or ""
}

func (p path) String() string {
	text := p.list
	if p.index >= 0 {
		text += fmt.Sprintf("[%d]", p.index)
	}
	if p.key != "" {
		text += "." + p.key
	}
	return text
}

func (d *decoder) fault(at path, format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf("%w: %v: %s", ErrSchema, at, fmt.Sprintf(format, args...))
	}
}

// items returns the elements of a list or a tuple.
func (d *decoder) items(v pickle.Value, at path) []pickle.Value {
	if v.Kind != pickle.List && v.Kind != pickle.Tuple {
		d.fault(at, "%v, where a list belongs", v.Kind)
	}
	return d.Items(v)
}

// dict records a fault for a value that is not a dict.
func (d *decoder) dict(v pickle.Value, at path) {
	if v.Kind != pickle.Dict {
		d.fault(at, "%v, where a dict belongs", v.Kind)
	}
}

func (d *decoder) number(v pickle.Value, at path) int64 {
	if v.Kind != pickle.Integer && v.Kind != pickle.Boolean {
		d.fault(at, "%v, where a number belongs", v.Kind)
	}
	return v.Bits
}

// bytes returns a size. The sum of all sizes fits in an int64, so callers can add them without checks.
func (d *decoder) bytes(v pickle.Value, at path) int64 {
	n := d.number(v, at)
	if n < 0 {
		d.fault(at, "%d, where a number of bytes belongs", n)
	}
	if n > math.MaxInt64-d.sum {
		d.fault(at, "%d bytes: the sizes up to here sum to more than %d", n, int64(math.MaxInt64))
	}
	d.sum += n
	return n
}

func (d *decoder) text(v pickle.Value, at path) string {
	if v.Kind != pickle.Text {
		d.fault(at, "%v, where a text belongs", v.Kind)
		return ""
	}
	return d.Text(v)
}

// decodeList builds a slice from a list; bytes is the size of an element.
func decodeList[T any](d *decoder, v pickle.Value, at path, bytes int64, element func(v pickle.Value, at path, to *T)) []T {
	items := d.items(v, at)
	if err := d.Hold(bytes * int64(len(items))); err != nil && d.err == nil {
		d.err = err
	}
	if d.err != nil || len(items) == 0 {
		return nil
	}
	list := at.String()
	out := make([]T, len(items))
	for i, item := range items {
		if element(item, path{list: list, index: i}, &out[i]); d.err != nil {
			return nil
		}
	}
	return out
}
