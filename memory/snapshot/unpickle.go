package snapshot

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"unsafe"
)

// ErrPickle is wrapped by the errors of Read for a file that is no pickle, that would
// run code, or that does not fit within the limits.
var ErrPickle = errors.New("snapshot: not a pickle of plain data")

// longest is the most bytes that one text may have. Names of files and functions are
// far below.
const longest = 1 << 20

// unpickler runs the opcodes of a pickle. It holds no more than a budget of bytes,
// counted before they are taken.
type unpickler struct {
	r      *bufio.Reader
	offset int64 // of the next byte
	budget int64 // bytes that may yet be held
	held   int64

	stack      []value
	marks      []int
	memo       []value
	texts      []string
	containers [][]value // lists and tuples; dicts as keys and values in turn
}

func (u *unpickler) fault(at int64, format string, args ...any) error {
	return fmt.Errorf("%w: byte %d: %s", ErrPickle, at, fmt.Sprintf(format, args...))
}

// ended says that the file ends where it should not, or why it could not be read on.
func (u *unpickler) ended(err error, where string) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return u.fault(u.offset, "the file ends %s", where)
	}
	return fmt.Errorf("snapshot: byte %d: %w", u.offset, err)
}

// The bytes that a file may make the reader hold depend on how much of it has been read. Those of
// PyTorch need up to 8 bytes for one of theirs.
const (
	heldAtOnce = 16 << 20
	heldByByte = 16
)

// hold takes bytes from the budget.
func (u *unpickler) hold(bytes int64) error {
	if u.budget -= bytes; u.budget < 0 {
		return u.fault(u.offset, "the file needs more memory than the limit allows: raise Limits.Memory for a file that you trust")
	}
	if u.held += bytes; u.held > heldAtOnce+heldByByte*u.offset {
		return u.fault(u.offset, "up to here the file needs %d bytes of memory, more than %d and %d for each of its bytes: no snapshot does", u.held, heldAtOnce, heldByByte)
	}
	return nil
}

// room returns a slice with room for n more elements, which it takes from the budget.
func room[T any](u *unpickler, s []T, n int) ([]T, error) {
	if n <= cap(s)-len(s) {
		return s, nil
	}
	most := len(s) + n
	if len(s) > 0 {
		most = max(most, 2*cap(s))
	}
	var one T
	if err := u.hold(int64(most-cap(s)) * int64(unsafe.Sizeof(one))); err != nil {
		return s, err
	}
	return append(make([]T, 0, most), s...), nil
}

// run returns the value that the pickle leaves.
func (u *unpickler) run() (value, error) {
	for {
		at := u.offset
		op, err := u.byte()
		if err != nil {
			return value{}, u.ended(err, "before its STOP: it is cut short, or it is no pickle")
		}
		if op == opStop {
			return u.pop(at)
		}
		if err := u.step(at, op); err != nil {
			return value{}, err
		}
	}
}

// step runs one opcode.
func (u *unpickler) step(at int64, op byte) error {
	switch op {
	case opProto:
		n, err := u.number(1)
		if err == nil && (n < 2 || n > 5) {
			err = u.fault(at, "protocol %d; 2 to 5 can be read", n)
		}
		return err
	case opFrame:
		_, err := u.number(8)
		return err
	case opMark:
		marks, err := room(u, u.marks, 1)
		u.marks = append(marks, len(u.stack))
		return err
	case opNone:
		return u.push(value{})
	case opTrue, opFalse:
		return u.push(value{kind: boolean, bits: int64(opFalse - op)})
	case opInt1:
		return u.pushUnsigned(1)
	case opInt2:
		return u.pushUnsigned(2)
	case opInt4:
		return u.pushSigned(4)
	case opLong1:
		return u.pushLong(at)
	case opFloat:
		n, err := u.number(8)
		if err != nil {
			return err
		}
		var b [8]byte
		binary.LittleEndian.PutUint64(b[:], n)
		return u.push(value{kind: float, bits: int64(binary.BigEndian.Uint64(b[:]))})
	case opUnicode:
		return u.pushText(at, 4)
	case opShortUnicode:
		return u.pushText(at, 1)
	case opEmptyList:
		return u.pushContainer(array, nil)
	case opEmptyDict:
		return u.pushContainer(dict, nil)
	case opEmptyTuple:
		return u.pushContainer(tuple, nil)
	case opTuple1, opTuple2, opTuple3:
		return u.gather(at, tuple, len(u.stack)-int(op-opTuple1)-1)
	case opTuple:
		return u.gatherMarked(at, tuple)
	case opList:
		return u.gatherMarked(at, array)
	case opDict:
		return u.gatherMarked(at, dict)
	case opAppend:
		return u.extend(at, array, len(u.stack)-1)
	case opSetItem:
		return u.extend(at, dict, len(u.stack)-2)
	case opAppends:
		return u.extendMarked(at, array)
	case opSetItems:
		return u.extendMarked(at, dict)
	case opPut, opLongPut, opMemoize:
		return u.remember(at, op)
	case opGet, opLongGet:
		return u.recall(at, op)
	}
	if name, ok := calling[op]; ok {
		return u.fault(at, "opcode %s would run code; a snapshot has none, and nothing of it is run", name)
	}
	if at == 0 {
		return u.fault(at, "the file begins with 0x%02x, and a pickle with 0x%02x: torch.cuda.memory._dump_snapshot writes one", op, opProto)
	}
	return u.fault(at, "opcode 0x%02x does not occur in snapshots", op)
}

func (u *unpickler) byte() (byte, error) {
	b, err := u.r.ReadByte()
	if err == nil {
		u.offset++
	}
	return b, err
}

// number reads a little-endian number of so many bytes.
func (u *unpickler) number(bytes int) (uint64, error) {
	var b [8]byte
	n, err := io.ReadFull(u.r, b[:bytes])
	u.offset += int64(n)
	if err != nil {
		return 0, u.ended(err, "within a number")
	}
	return binary.LittleEndian.Uint64(b[:]), nil
}

func (u *unpickler) pushUnsigned(bytes int) error {
	n, err := u.number(bytes)
	if err != nil {
		return err
	}
	return u.push(value{kind: integer, bits: int64(n)})
}

// pushSigned reads a two's complement number.
func (u *unpickler) pushSigned(bytes int) error {
	n, err := u.number(bytes)
	if err != nil {
		return err
	}
	unused := 64 - 8*bytes
	return u.push(value{kind: integer, bits: int64(n<<unused) >> unused})
}

// pushLong reads a number that says its length.
func (u *unpickler) pushLong(at int64) error {
	bytes, err := u.number(1)
	if err != nil {
		return err
	}
	if bytes > 8 {
		return u.fault(at, "a number of %d bytes; addresses and sizes have at most 8", bytes)
	}
	return u.pushSigned(int(bytes))
}

func (u *unpickler) pushText(at int64, bytes int) error {
	n, err := u.number(bytes)
	if err != nil {
		return err
	}
	if n > longest {
		return u.fault(at, "a text of %d bytes; at most %d are read", n, longest)
	}
	if err := u.hold(int64(n)); err != nil {
		return err
	}
	b := make([]byte, n)
	read, err := io.ReadFull(u.r, b)
	u.offset += int64(read)
	if err != nil {
		return u.ended(err, "within a text")
	}
	if u.texts, err = room(u, u.texts, 1); err != nil {
		return err
	}
	u.texts = append(u.texts, string(b))
	return u.push(value{kind: text, ref: uint32(len(u.texts) - 1)})
}
