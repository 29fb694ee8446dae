package pickle

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"unsafe"
)

// Options describes the files to read. Err, Content and Writer are required.
type Options struct {
	// Memory bounds the bytes that the data may hold, approximately; 0 means 4 GiB. For a small
	// file, the bound is lower: 16 MiB plus 16 times the size of the file.
	Memory int64
	// Err is the error that faults wrap.
	Err error
	// Content names a file in faults, such as "snapshot", and Writer the function that writes one.
	Content, Writer string
	// Limit says how to raise Memory, if users can.
	Limit string
}

// longest is the maximum length of a text in bytes. Names of files and functions are much shorter.
const longest = 1 << 20

// Data is the content of a file. It takes no more bytes than its budget, and counts them before
// it takes them.
type Data struct {
	Options
	r      *bufio.Reader
	offset int64 // offset of the next byte
	held   int64

	stack      []Value
	marks      []int
	memo       []Value
	texts      []string
	containers [][]Value // elements of lists and tuples; keys and values of dicts, alternating
	top        Value
}

// Read reads a pickle up to its STOP.
func Read(r io.Reader, options Options) (*Data, error) {
	d := newData(r, options)
	var err error
	if d.top, err = d.run(); err != nil {
		return nil, err
	}
	return d.read(), nil
}

func newData(r io.Reader, options Options) *Data {
	d := &Data{Options: options, r: bufio.NewReaderSize(r, 1<<16)}
	if d.Memory <= 0 {
		d.Memory = 4 << 30
	}
	return d
}

// read releases the reader's state, and returns the data.
func (d *Data) read() *Data {
	d.r, d.stack, d.marks, d.memo = nil, nil, nil, nil
	return d
}

func (d *Data) fault(at int64, format string, args ...any) error {
	return fmt.Errorf("%w: byte %d: %s", d.Err, at, fmt.Sprintf(format, args...))
}

// ended returns the error of a file that ends too early or cannot be read.
func (d *Data) ended(err error, where string) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return d.fault(d.offset, "the file ends %s", where)
	}
	return fmt.Errorf("pickle: byte %d: %w", d.offset, err)
}

// The number of bytes that the data may hold depends on the number of bytes read. PyTorch's files
// need up to 8 bytes for each byte of the file.
const (
	heldAtOnce = 16 << 20
	heldByByte = 16
)

// Hold takes bytes from the budget. Callers use it for the values that they build from the data.
func (d *Data) Hold(bytes int64) error {
	if d.Memory -= bytes; d.Memory < 0 {
		return d.fault(d.offset, "the file needs more memory than the limit allows%s", d.Limit)
	}
	if d.held += bytes; d.held > heldAtOnce+heldByByte*d.offset {
		return d.fault(d.offset, "up to here the file needs %d bytes of memory, more than %d and %d for each of its bytes: no %s does", d.held, heldAtOnce, heldByByte, d.Content)
	}
	return nil
}

// room returns the slice with room for n more elements, whose bytes it takes from the budget.
func room[T any](d *Data, s []T, n int) ([]T, error) {
	if n <= cap(s)-len(s) {
		return s, nil
	}
	most := len(s) + n
	if len(s) > 0 {
		most = max(most, 2*cap(s))
	}
	var one T
	if err := d.Hold(int64(most-cap(s)) * int64(unsafe.Sizeof(one))); err != nil {
		return s, err
	}
	return append(make([]T, 0, most), s...), nil
}

// run runs the pickle, and returns the value that it leaves on the stack.
func (d *Data) run() (Value, error) {
	for {
		at := d.offset
		op, err := d.byte()
		if err != nil {
			return Value{}, d.ended(err, "before its STOP: it is cut short, or it is no pickle")
		}
		if op == OpStop {
			return d.pop(at)
		}
		if err := d.step(at, op); err != nil {
			return Value{}, err
		}
	}
}

// step runs one opcode.
func (d *Data) step(at int64, op byte) error {
	switch op {
	case OpProto:
		n, err := d.number(1)
		if err == nil && (n < 2 || n > 5) {
			err = d.fault(at, "protocol %d; 2 to 5 can be read", n)
		}
		return err
	case OpFrame:
		_, err := d.number(8)
		return err
	case OpMark:
		marks, err := room(d, d.marks, 1)
		d.marks = append(marks, len(d.stack))
		return err
	case OpNone:
		return d.push(Value{})
	case OpTrue, OpFalse:
		return d.push(Value{Kind: Boolean, Bits: int64(OpFalse - op)})
	case OpInt1:
		return d.pushInteger(1, false)
	case OpInt2:
		return d.pushInteger(2, false)
	case OpInt4:
		return d.pushInteger(4, true)
	case OpLong1:
		bytes, err := d.number(1)
		if err == nil && bytes > 8 {
			err = d.fault(at, "a number of %d bytes; addresses and sizes have at most 8", bytes)
		}
		if err != nil {
			return err
		}
		return d.pushInteger(int(bytes), true)
	case OpFloat:
		n, err := d.number(8)
		if err != nil {
			return err
		}
		var b [8]byte
		binary.LittleEndian.PutUint64(b[:], n)
		return d.push(Value{Kind: Float, Bits: int64(binary.BigEndian.Uint64(b[:]))})
	case OpUnicode:
		return d.readText(at, 4)
	case OpShortUnicode:
		return d.readText(at, 1)
	case OpEmptyList:
		return d.pushContainer(List, nil)
	case OpEmptyDict:
		return d.pushContainer(Dict, nil)
	case OpEmptyTuple:
		return d.pushContainer(Tuple, nil)
	case OpTuple1, OpTuple2, OpTuple3:
		return d.gather(at, Tuple, len(d.stack)-int(op-OpTuple1)-1)
	case OpTuple:
		return d.gather(at, Tuple, d.unmark())
	case OpList:
		return d.gather(at, List, d.unmark())
	case OpDict:
		return d.gather(at, Dict, d.unmark())
	case OpAppend:
		return d.extend(at, List, len(d.stack)-1)
	case OpSetItem:
		return d.extend(at, Dict, len(d.stack)-2)
	case OpAppends:
		return d.extend(at, List, d.unmark())
	case OpSetItems:
		return d.extend(at, Dict, d.unmark())
	case OpPut:
		return d.remember(at, 1)
	case OpLongPut:
		return d.remember(at, 4)
	case OpMemoize:
		return d.remember(at, 0)
	case OpGet, OpLongGet:
		if at > 0 && op == OpGet {
			return d.recall(at, 1)
		}
		if at > 0 {
			return d.recall(at, 4)
		}
	}
	if rest, _ := d.r.Peek(3); at == 0 && op == 'P' && string(rest) == "K\x03\x04" {
		return d.fault(at, "the file is a zip archive, as torch.save writes: unzip -p FILE '*/data.pkl' writes the pickle in it, or let %s write one", d.Writer)
	}
	if at == 0 {
		return d.fault(at, "the file begins with 0x%02x, and a pickle with 0x%02x: %s writes one", op, OpProto, d.Writer)
	}
	if name, ok := calling[op]; ok {
		return d.fault(at, "opcode %s would run code; a %s has none, and nothing of it is run", name, d.Content)
	}
	return d.fault(at, "opcode 0x%02x does not occur in a %s", op, d.Content)
}

func (d *Data) byte() (byte, error) {
	b, err := d.r.ReadByte()
	if err == nil {
		d.offset++
	}
	return b, err
}

// number reads a little-endian number with the given number of bytes.
func (d *Data) number(bytes int) (n uint64, err error) {
	b, err := d.r.Peek(bytes)
	if err != nil {
		d.offset += int64(len(b))
		return 0, d.ended(err, "within a number")
	}
	for i, one := range b {
		n |= uint64(one) << (8 * i)
	}
	_, err = d.r.Discard(bytes) // They are in the buffer.
	d.offset += int64(bytes)
	return n, err
}

// pushInteger reads a number, in two's complement if it is signed.
func (d *Data) pushInteger(bytes int, signed bool) error {
	n, err := d.number(bytes)
	if unused := 64 - 8*bytes; signed {
		n = uint64(int64(n<<unused) >> unused)
	}
	if err != nil {
		return err
	}
	return d.push(Value{Kind: Integer, Bits: int64(n)})
}

func (d *Data) readText(at int64, bytes int) error {
	n, err := d.number(bytes)
	if err != nil {
		return err
	}
	if n > longest {
		return d.fault(at, "a text of %d bytes; at most %d are read", n, longest)
	}
	if err := d.Hold(int64(n)); err != nil {
		return err
	}
	b := make([]byte, n)
	read, err := io.ReadFull(d.r, b)
	d.offset += int64(read)
	if err != nil {
		return d.ended(err, "within a text")
	}
	return d.pushString(string(b))
}
