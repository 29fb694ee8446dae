package snapshot

import (
	"bufio"
	"encoding/binary"
	"io"
	"math"

	"github.com/weir-ml/weir/internal/formats/pickle"
)

// Write writes a snapshot as a pickle of protocol 2. Lists of frames that share memory are written only
// once. Addresses should be below 2^53, because the viewer uses floating point.
func Write(w io.Writer, s *Snapshot) error {
	p := pickler{w: bufio.NewWriter(w), texts: map[string]uint32{}, stacks: map[stack]uint32{}}
	p.op(pickle.OpProto, 2)
	p.dict(func() {
		p.text("segments")
		list(&p, s.Segments, func(s *Segment) { p.fields(s.fields()) })
		p.text("device_traces")
		list(&p, s.Traces, func(trace *[]TraceEntry) {
			list(&p, *trace, func(e *TraceEntry) {
				address := "addr"
				if e.Action == OutOfMemory {
					address = "device_free"
				}
				p.fields(e.fields(address))
			})
		})
		p.text("allocator_settings")
		p.fields(s.Settings.fields())
	})
	p.op(pickle.OpStop)
	return p.w.Flush()
}

// fields writes a dict.
func (p *pickler) fields(fields []field) {
	p.dict(func() {
		for _, f := range fields {
			p.text(f.key)
			p.value(f.value)
		}
	})
}

func (p *pickler) value(value any) {
	switch of := value.(type) {
	case *int:
		p.int(int64(*of))
	case *int64:
		p.int(*of)
	case *size:
		p.int(int64(*of))
	case *requested:
		p.int(int64(*of))
	case *split:
		if *of <= 0 {
			p.int(-1)
		} else {
			p.int(int64(*of))
		}
	case *float64:
		p.op(binary.BigEndian.AppendUint64([]byte{pickle.OpFloat}, math.Float64bits(*of))...)
	case *bool:
		op := byte(pickle.OpFalse)
		if *of {
			op = pickle.OpTrue
		}
		p.op(op)
	case *string:
		p.text(*of)
	case *Action:
		p.text(string(*of))
	case *State:
		p.text(string(*of))
	case *small:
		if *of {
			p.text("small")
		} else {
			p.text("large")
		}
	case *[2]int64:
		p.int(of[0])
		p.int(of[1])
		p.op(pickle.OpTuple2)
	case *[]Frame:
		p.frames(*of)
	case *[]Block:
		list(p, *of, func(b *Block) { p.fields(b.fields()) })
	}
}

// frames writes a list of frames, or a reference to the same list written before.
func (p *pickler) frames(frames []Frame) {
	if len(frames) == 0 {
		p.op(pickle.OpEmptyList)
		return
	}
	key := stack{&frames[0], len(frames)}
	if memo, ok := p.stacks[key]; ok {
		p.get(memo)
		return
	}
	list(p, frames, func(f *Frame) { p.fields(f.fields()) })
	p.stacks[key] = p.put()
}

// pickler writes opcodes. It keeps the first error of the writer.
type pickler struct {
	w      *bufio.Writer
	texts  map[string]uint32 // memo of texts
	stacks map[stack]uint32  // memo of lists of frames
	memo   uint32
}

// stack is the identity of a list of frames.
type stack struct {
	first *Frame
	len   int
}

// batch is the maximum number of elements of an APPENDS, the same as in Python: the viewer passes them to
// a single call.
const batch = 1000

func list[T any](p *pickler, items []T, write func(*T)) {
	p.op(pickle.OpEmptyList)
	for i := range items {
		if i%batch == 0 {
			if i > 0 {
				p.op(pickle.OpAppends)
			}
			p.op(pickle.OpMark)
		}
		write(&items[i])
	}
	if len(items) > 0 {
		p.op(pickle.OpAppends)
	}
}

func (p *pickler) dict(items func()) {
	p.op(pickle.OpEmptyDict, pickle.OpMark)
	items()
	p.op(pickle.OpSetItems)
}

func (p *pickler) op(bytes ...byte) { p.w.Write(bytes) }

func (p *pickler) int(n int64) {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], uint64(n))
	switch {
	case n >= 0 && n <= math.MaxUint8:
		p.op(pickle.OpInt1, b[0])
	case n >= 0 && n <= math.MaxUint16:
		p.op(pickle.OpInt2, b[0], b[1])
	case n >= math.MinInt32 && n <= math.MaxInt32:
		p.op(pickle.OpInt4, b[0], b[1], b[2], b[3])
	default:
		p.op(pickle.OpLong1, 8)
		p.op(b[:]...)
	}
}

func (p *pickler) text(s string) {
	if memo, ok := p.texts[s]; ok {
		p.get(memo)
		return
	}
	p.op(binary.LittleEndian.AppendUint32([]byte{pickle.OpUnicode}, uint32(len(s)))...)
	p.w.WriteString(s)
	p.texts[s] = p.put()
}

// put memoizes the last value written and returns its number.
func (p *pickler) put() uint32 {
	memo := p.memo
	p.memo++
	p.numbered(pickle.OpPut, pickle.OpLongPut, memo)
	return memo
}

func (p *pickler) get(memo uint32) { p.numbered(pickle.OpGet, pickle.OpLongGet, memo) }

func (p *pickler) numbered(short, long byte, memo uint32) {
	if memo <= math.MaxUint8 {
		p.op(short, byte(memo))
		return
	}
	p.op(binary.LittleEndian.AppendUint32([]byte{long}, memo)...)
}
