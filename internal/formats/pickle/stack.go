package pickle

func (d *Data) push(v Value) error {
	stack, err := room(d, d.stack, 1)
	d.stack = append(stack, v)
	return err
}

// pushString pushes a text whose bytes have been taken from the budget.
func (d *Data) pushString(s string) error {
	texts, err := room(d, d.texts, 1)
	if err != nil {
		return err
	}
	d.texts = append(texts, s)
	return d.push(Value{Kind: Text, Ref: uint32(len(d.texts) - 1)})
}

func (d *Data) pop(at int64) (Value, error) {
	if len(d.stack) == 0 {
		return Value{}, d.fault(at, "nothing is on the stack")
	}
	v := d.stack[len(d.stack)-1]
	d.stack = d.stack[:len(d.stack)-1]
	return v, nil
}

const noMark = -1 << 31

// unmark takes the last mark, and returns the size of the stack below it, or noMark.
func (d *Data) unmark() int {
	if len(d.marks) == 0 {
		return noMark
	}
	start := d.marks[len(d.marks)-1]
	d.marks = d.marks[:len(d.marks)-1]
	return start
}

func (d *Data) pushContainer(k Kind, items []Value) error {
	containers, err := room(d, d.containers, 1)
	if err != nil {
		return err
	}
	d.containers = append(containers, items)
	return d.push(Value{Kind: k, Ref: uint32(len(d.containers) - 1)})
}

// gather replaces the values on the stack, starting at start, with a container that holds them.
func (d *Data) gather(at int64, k Kind, start int) error {
	items, err := d.above(at, k, start)
	if err != nil {
		return err
	}
	if items, err = taken(d, nil, items); err != nil {
		return err
	}
	d.stack = d.stack[:start]
	return d.pushContainer(k, items)
}

// extend moves the values on the stack, starting at start, into the container below them.
func (d *Data) extend(at int64, k Kind, start int) error {
	items, err := d.above(at, k, start)
	if err != nil {
		return err
	}
	if start == 0 || len(d.marks) > 0 && d.marks[len(d.marks)-1] == start || d.stack[start-1].Kind != k {
		return d.fault(at, "what should become longer is not %v", k)
	}
	ref := d.stack[start-1].Ref
	if d.containers[ref], err = taken(d, d.containers[ref], items); err != nil {
		return err
	}
	d.stack = d.stack[:start]
	return nil
}

// taken appends values to a container.
func taken(d *Data, container, items []Value) ([]Value, error) {
	container, err := room(d, container, len(items))
	return append(container, items...), err
}

// above returns the values on the stack, starting at start. There must be no open mark among
// them.
func (d *Data) above(at int64, k Kind, start int) ([]Value, error) {
	if start == noMark {
		return nil, d.fault(at, "no MARK is open")
	}
	if start < 0 || start > len(d.stack) || len(d.marks) > 0 && d.marks[len(d.marks)-1] > start {
		return nil, d.fault(at, "fewer values on the stack than the opcode takes")
	}
	items := d.stack[start:]
	if k == Dict && len(items)%2 != 0 {
		return nil, d.fault(at, "a key without a value")
	}
	return items, nil
}

// skipped is the maximum number of memo slots that one opcode may skip.
const skipped = 1 << 16

// remember memoizes the value on top of the stack. Its memo number is read from the given number of
// bytes; if that is 0, it is the next number.
func (d *Data) remember(at int64, bytes int) error {
	slot, err := d.number(bytes)
	if err != nil {
		return err
	}
	if bytes == 0 {
		slot = uint64(len(d.memo))
	}
	if len(d.stack) == 0 {
		return d.fault(at, "nothing is on the stack")
	}
	if slot > uint64(len(d.memo)+skipped) {
		return d.fault(at, "memo number %d after %d values", slot, len(d.memo))
	}
	if missing := int(slot) + 1 - len(d.memo); missing > 0 {
		if d.memo, err = room(d, d.memo, missing); err != nil {
			return err
		}
		d.memo = d.memo[:slot+1]
	}
	d.memo[slot] = d.stack[len(d.stack)-1]
	return nil
}

// recall pushes a memoized value. Its memo number is read from the given number of bytes.
func (d *Data) recall(at int64, bytes int) error {
	slot, err := d.number(bytes)
	if err != nil {
		return err
	}
	if slot >= uint64(len(d.memo)) {
		return d.fault(at, "memo number %d was never set", slot)
	}
	return d.push(d.memo[slot])
}
