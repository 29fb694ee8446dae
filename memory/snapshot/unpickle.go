package snapshot

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// ErrPickle is wrapped by the errors of Read for a file that is no pickle, that would
// run code, or that does not fit within the limits.
var ErrPickle = errors.New("snapshot: not a pickle of plain data")

// longest is the most bytes that one text may have. Names of files and functions are
// far below.
const longest = 1 << 20

// kind is what a value is.
type kind uint8

const (
	null kind = iota
	boolean
	integer
	float
	text
	array
	dict
	tuple
)

func (k kind) String() string {
	return [...]string{"nothing", "a truth value", "a number", "a fraction", "a text", "a list", "a dict", "a tuple"}[k]
}

// value is one value of a pickle: a number in itself, or the place of a text or of a
// container.
type value struct {
	kind kind
	ref  uint32
	bits int64
}

// unpickler runs the opcodes of a pickle. It holds no more than a budget of bytes,
// counted before they are taken.
type unpickler struct {
	r      *bufio.Reader
	offset int64 // of the next byte
	budget int64 // bytes that may yet be held

	stack      []value
	marks      []int
	memo       []value
	texts      []string
	containers [][]value // lists and tuples; dicts as keys and values in turn
}

func (u *unpickler) fault(at int64, format string, args ...any) error {
	return fmt.Errorf("%w: byte %d: %s", ErrPickle, at, fmt.Sprintf(format, args...))
}

// hold takes bytes from the budget.
func (u *unpickler) hold(bytes int64) error {
	if u.budget -= bytes; u.budget < 0 {
		return u.fault(u.offset, "the file needs more memory than the limit allows: raise Limits.Memory for a file that you trust")
	}
	return nil
}

// run returns the value that the pickle leaves.
func (u *unpickler) run() (value, error) {
	for {
		at := u.offset
		op, err := u.byte()
		if err != nil {
			return value{}, u.fault(at, "the file ends before its STOP: it is cut short, or it is no pickle")
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
		u.marks = append(u.marks, len(u.stack))
		return u.hold(16)
	case opNone:
		return u.push(value{})
	case opTrue, opFalse:
		return u.push(value{kind: boolean, bits: int64(opFalse - op)})
	case opInt1, opInt2, opInt4:
		return u.pushInt(op)
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
	case opTuple, opList, opDict:
		start, err := u.unmark(at)
		if err != nil {
			return err
		}
		return u.gather(at, map[byte]kind{opTuple: tuple, opList: array, opDict: dict}[op], start)
	case opAppend:
		return u.extend(at, array, len(u.stack)-1)
	case opSetItem:
		return u.extend(at, dict, len(u.stack)-2)
	case opAppends, opSetItems:
		start, err := u.unmark(at)
		if err != nil {
			return err
		}
		return u.extend(at, map[byte]kind{opAppends: array, opSetItems: dict}[op], start)
	case opPut, opLongPut, opMemoize:
		return u.remember(at, op)
	case opGet, opLongGet:
		return u.recall(at, op)
	}
	if name, ok := calling[op]; ok {
		return u.fault(at, "opcode %s would run code; a snapshot has none, and nothing of it is run", name)
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
		return 0, u.fault(u.offset, "the file ends within a number")
	}
	return binary.LittleEndian.Uint64(b[:]), nil
}

func (u *unpickler) push(v value) error {
	u.stack = append(u.stack, v)
	return u.hold(16)
}

func (u *unpickler) pop(at int64) (value, error) {
	if len(u.stack) == 0 {
		return value{}, u.fault(at, "nothing is on the stack")
	}
	v := u.stack[len(u.stack)-1]
	u.stack = u.stack[:len(u.stack)-1]
	return v, nil
}

func (u *unpickler) unmark(at int64) (int, error) {
	if len(u.marks) == 0 {
		return 0, u.fault(at, "no MARK is open")
	}
	start := u.marks[len(u.marks)-1]
	u.marks = u.marks[:len(u.marks)-1]
	return start, nil
}

func (u *unpickler) pushInt(op byte) error {
	bytes := map[byte]int{opInt1: 1, opInt2: 2, opInt4: 4}[op]
	n, err := u.number(bytes)
	if err != nil {
		return err
	}
	if op == opInt4 {
		return u.push(value{kind: integer, bits: int64(int32(n))})
	}
	return u.push(value{kind: integer, bits: int64(n)})
}

// pushLong reads a two's complement number of up to eight bytes.
func (u *unpickler) pushLong(at int64) error {
	bytes, err := u.number(1)
	if err != nil {
		return err
	}
	if bytes > 8 {
		return u.fault(at, "a number of %d bytes; addresses and sizes have at most 8", bytes)
	}
	n, err := u.number(int(bytes))
	if err != nil {
		return err
	}
	unused := 64 - 8*bytes
	return u.push(value{kind: integer, bits: int64(n<<unused) >> unused})
}

func (u *unpickler) pushText(at int64, bytes int) error {
	n, err := u.number(bytes)
	if err != nil {
		return err
	}
	if n > longest {
		return u.fault(at, "a text of %d bytes; at most %d are read", n, longest)
	}
	if err := u.hold(int64(n) + 16); err != nil {
		return err
	}
	b := make([]byte, n)
	read, err := io.ReadFull(u.r, b)
	u.offset += int64(read)
	if err != nil {
		return u.fault(u.offset, "the file ends within a text")
	}
	u.texts = append(u.texts, string(b))
	return u.push(value{kind: text, ref: uint32(len(u.texts) - 1)})
}

func (u *unpickler) pushContainer(k kind, items []value) error {
	if err := u.hold(24 + 16*int64(len(items))); err != nil {
		return err
	}
	u.containers = append(u.containers, items)
	return u.push(value{kind: k, ref: uint32(len(u.containers) - 1)})
}

// gather makes a container of what lies on the stack from start on.
func (u *unpickler) gather(at int64, k kind, start int) error {
	items, err := u.above(at, k, start)
	if err != nil {
		return err
	}
	items = append([]value(nil), items...)
	u.stack = u.stack[:start]
	return u.pushContainer(k, items)
}

// extend moves what lies on the stack from start on into the container below it.
func (u *unpickler) extend(at int64, k kind, start int) error {
	items, err := u.above(at, k, start)
	if err != nil {
		return err
	}
	if start == 0 || len(u.marks) > 0 && u.marks[len(u.marks)-1] == start || u.stack[start-1].kind != k {
		return u.fault(at, "what should become longer is not %v", k)
	}
	if err := u.hold(32 * int64(len(items))); err != nil { // twice: an append may double
		return err
	}
	ref := u.stack[start-1].ref
	u.containers[ref] = append(u.containers[ref], items...)
	u.stack = u.stack[:start]
	return nil
}

// above returns the part of the stack from start on, which no open mark may be in.
func (u *unpickler) above(at int64, k kind, start int) ([]value, error) {
	if start < 0 || start > len(u.stack) || len(u.marks) > 0 && u.marks[len(u.marks)-1] > start {
		return nil, u.fault(at, "fewer values on the stack than the opcode takes")
	}
	items := u.stack[start:]
	if k == dict && len(items)%2 != 0 {
		return nil, u.fault(at, "a key without a value")
	}
	return items, nil
}

// skipped is how many numbers of the memo may be left out at once.
const skipped = 1 << 16

func (u *unpickler) remember(at int64, op byte) error {
	slot := uint64(len(u.memo))
	var err error
	switch op {
	case opPut:
		slot, err = u.number(1)
	case opLongPut:
		slot, err = u.number(4)
	}
	if err != nil {
		return err
	}
	if len(u.stack) == 0 {
		return u.fault(at, "nothing is on the stack")
	}
	if slot > uint64(len(u.memo)+skipped) {
		return u.fault(at, "memo number %d after %d values", slot, len(u.memo))
	}
	for uint64(len(u.memo)) <= slot {
		if err := u.hold(16); err != nil {
			return err
		}
		u.memo = append(u.memo, value{})
	}
	u.memo[slot] = u.stack[len(u.stack)-1]
	return nil
}

func (u *unpickler) recall(at int64, op byte) error {
	bytes := 1
	if op == opLongGet {
		bytes = 4
	}
	slot, err := u.number(bytes)
	if err != nil {
		return err
	}
	if slot >= uint64(len(u.memo)) {
		return u.fault(at, "memo number %d was never set", slot)
	}
	return u.push(u.memo[slot])
}
