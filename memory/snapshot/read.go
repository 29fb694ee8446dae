package snapshot

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
)

// ErrSchema is wrapped by the errors of Read for a pickle that is no memory snapshot.
var ErrSchema = errors.New("snapshot: not a memory snapshot")

// Limits bound what a file may cost. The zero value is fit for files of strangers.
type Limits struct {
	// Memory is how many bytes Read may hold, about; 0 is 4 GiB. Of a small file it holds
	// less: 16 MiB and 16 bytes for each of the file's.
	Memory int64
}

// Read reads a snapshot. Entries of a trace that it does not know stay in it; keys
// that it does not know are left out. It reads protocols 2 to 5, from PyTorch 2.1 on.
func Read(r io.Reader, limits Limits) (*Snapshot, error) {
	if limits.Memory <= 0 {
		limits.Memory = 4 << 30
	}
	u := &unpickler{r: bufio.NewReaderSize(r, 1<<16), budget: limits.Memory}
	top, err := u.run()
	if err != nil {
		return nil, err
	}
	d := decoder{unpickler: u, stacks: map[uint32][]Frame{}}
	s := d.snapshot(top)
	if d.err != nil {
		return nil, d.err
	}
	return s, nil
}

// decoder makes a snapshot of the values of a pickle. The first error stays, and what
// follows it is empty.
type decoder struct {
	*unpickler
	stacks map[uint32][]Frame // by container
	sum    int64              // of all sizes
	err    error
}

func (d *decoder) snapshot(v value) *Snapshot {
	s := &Snapshot{}
	found := 0
	top := path{list: "the top", index: -1}
	d.dict(v, top, func(key string, v value) {
		switch key {
		case "segments":
			found++
			s.Segments = decodeList(d, v, "segments", 128, d.segment)
		case "device_traces":
			found++
			s.Traces = decodeList(d, v, "device_traces", 24, func(v value, at path, trace *[]Entry) {
				*trace = decodeList(d, v, at.String(), 80, func(v value, at path, e *Entry) { d.fill(v, at, e.fields("addr", "device_free")) })
			})
		case "allocator_settings":
			d.fill(v, path{list: "allocator_settings", index: -1}, s.Settings.fields())
		}
	})
	if d.err == nil && found < 2 {
		d.fault(top.String(), "a snapshot has segments and device_traces, and this has not: write it with torch.cuda.memory._dump_snapshot")
	}
	return s
}

func (d *decoder) segment(v value, at path, s *Segment) {
	d.fill(v, at, s.fields())
	next := s.Address
	for i := range s.Blocks {
		b := &s.Blocks[i]
		if b.Address == 0 { // the snapshots of 2.1 do not say it
			b.Address = next
		}
		next = b.Address + b.Size
	}
}

func (d *decoder) block(v value, at path, b *Block) {
	b.Requested, b.State = -1, Inactive
	d.fill(v, at, b.fields())
	if b.Requested < 0 {
		b.Requested = b.Size
	}
}

// fill gives the fields of a dict their values. Keys of no field are left out.
func (d *decoder) fill(v value, at path, fields []field) {
	d.dict(v, at, func(key string, v value) {
		for _, f := range fields {
			if f.key == key {
				d.field(f, v, at)
			}
		}
	})
}

func (d *decoder) field(f field, v value, at path) {
	switch to := f.value.(type) {
	case *int:
		*to = int(d.number(v, at, f.key))
	case *int64:
		*to = d.number(v, at, f.key)
	case *size:
		*to = size(d.bytes(v, at, f.key))
	case *requested:
		if *to = requested(d.number(v, at, f.key)); *to > 0 {
			*to = requested(d.bytes(v, at, f.key))
		}
	case *split:
		*to = split(max(0, d.number(v, at, f.key)))
	case *bool:
		*to = v.kind == boolean && v.bits != 0
	case *string:
		*to = d.text(v, at, f.key)
	case *Action:
		*to = Action(d.text(v, at, f.key))
	case *small:
		*to = d.text(v, at, f.key) == "small"
	case *State:
		switch s := d.text(v, at, f.key); s {
		case "active_awaiting_free", string(Pending): // both names have been in use
			*to = Pending
		case string(Live), string(Inactive):
			*to = State(s)
		default:
			d.fault(at.String(), "state %q", s)
		}
	case *[2]int64:
		if pair := d.items(v, at.String()+"."+f.key); len(pair) == 2 {
			*to = [2]int64{d.number(pair[0], at, f.key), d.number(pair[1], at, f.key)}
		}
	case *[]Frame:
		*to = d.frames(v, at)
	case *[]Block:
		*to = decodeList(d, v, at.String()+"."+f.key, 88, d.block)
	}
}

// frames returns a list of frames. The same list of the file becomes the same slice.
func (d *decoder) frames(v value, at path) []Frame {
	if v.kind == null || d.err != nil {
		return nil
	}
	if frames, ok := d.stacks[v.ref]; ok && v.kind == array {
		return frames
	}
	frames := decodeList(d, v, at.String()+".frames", 40, func(v value, at path, f *Frame) { d.fill(v, at, f.fields()) })
	if d.err == nil {
		d.stacks[v.ref] = frames
	}
	return frames
}

// path names an element of a list, for errors. It becomes a text only there.
type path struct {
	list  string
	index int // -1 where it is no element
}

func (p path) String() string {
	if p.index < 0 {
		return p.list
	}
	return fmt.Sprintf("%s[%d]", p.list, p.index)
}

func (d *decoder) fault(at, format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf("%w: %s: %s", ErrSchema, at, fmt.Sprintf(format, args...))
	}
}

// items returns the elements of a list or a tuple.
func (d *decoder) items(v value, at string) []value {
	if v.kind != array && v.kind != tuple {
		d.fault(at, "%v, where a list belongs", v.kind)
		return nil
	}
	return d.containers[v.ref]
}

// dict calls visit for every key of a dict that is a text.
func (d *decoder) dict(v value, at path, visit func(key string, v value)) {
	if v.kind != dict {
		d.fault(at.String(), "%v, where a dict belongs", v.kind)
		return
	}
	items := d.containers[v.ref]
	for i := 0; i+1 < len(items) && d.err == nil; i += 2 {
		if items[i].kind == text {
			visit(d.texts[items[i].ref], items[i+1])
		}
	}
}

func (d *decoder) number(v value, at path, key string) int64 {
	if v.kind != integer && v.kind != boolean {
		d.fault(at.String()+"."+key, "%v, where a number belongs", v.kind)
		return 0
	}
	return v.bits
}

// bytes returns a size. All of them together are within an int64, so that whoever adds
// them up does not have to look.
func (d *decoder) bytes(v value, at path, key string) int64 {
	n := d.number(v, at, key)
	switch {
	case n < 0:
		d.fault(at.String()+"."+key, "%d, where a number of bytes belongs", n)
		return 0
	case n > math.MaxInt64-d.sum:
		d.fault(at.String()+"."+key, "%d bytes: the sizes up to here sum to more than %d", n, int64(math.MaxInt64))
		return 0
	}
	d.sum += n
	return n
}

func (d *decoder) text(v value, at path, key string) string {
	if v.kind != text {
		d.fault(at.String()+"."+key, "%v, where a text belongs", v.kind)
		return ""
	}
	return d.texts[v.ref]
}

// decodeList makes a slice of a list; an element of it takes so many bytes.
func decodeList[T any](d *decoder, v value, at string, bytes int64, element func(v value, at path, to *T)) []T {
	items := d.items(v, at)
	if err := d.hold(bytes * int64(len(items))); err != nil && d.err == nil {
		d.err = err
	}
	if d.err != nil || len(items) == 0 {
		return nil
	}
	out := make([]T, len(items))
	for i, item := range items {
		if element(item, path{at, i}, &out[i]); d.err != nil {
			return nil
		}
	}
	return out
}
