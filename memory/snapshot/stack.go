package snapshot

func (u *unpickler) push(v value) error {
	stack, err := room(u, u.stack, 1)
	u.stack = append(stack, v)
	return err
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

func (u *unpickler) pushContainer(k kind, items []value) error {
	containers, err := room(u, u.containers, 1)
	if err != nil {
		return err
	}
	u.containers = append(containers, items)
	return u.push(value{kind: k, ref: uint32(len(u.containers) - 1)})
}

// gather makes a container of what lies on the stack from start on.
func (u *unpickler) gather(at int64, k kind, start int) error {
	items, err := u.above(at, k, start)
	if err != nil {
		return err
	}
	if items, err = taken(u, nil, items); err != nil {
		return err
	}
	u.stack = u.stack[:start]
	return u.pushContainer(k, items)
}

func (u *unpickler) gatherMarked(at int64, k kind) error {
	start, err := u.unmark(at)
	if err != nil {
		return err
	}
	return u.gather(at, k, start)
}

func (u *unpickler) extendMarked(at int64, k kind) error {
	start, err := u.unmark(at)
	if err != nil {
		return err
	}
	return u.extend(at, k, start)
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
	ref := u.stack[start-1].ref
	if u.containers[ref], err = taken(u, u.containers[ref], items); err != nil {
		return err
	}
	u.stack = u.stack[:start]
	return nil
}

// taken appends values to those of a container.
func taken(u *unpickler, container, items []value) ([]value, error) {
	container, err := room(u, container, len(items))
	return append(container, items...), err
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
	if missing := int(slot) + 1 - len(u.memo); missing > 0 {
		if u.memo, err = room(u, u.memo, missing); err != nil {
			return err
		}
		u.memo = u.memo[:slot+1]
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
