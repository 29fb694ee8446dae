package runner

import (
	"fmt"
	"iter"
	"slices"

	"github.com/weir-ml/weir/internal/frames"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule/layout"
)

// tape writes down what calls do to the references of buffers: of those that are born
// in them, and of those that are lent to them. What was there before is not theirs.
type tape[T any] struct {
	space   memory.Space[T]
	watched memory.Watched[T]
	frames  *frames.Frames[T]

	buffers []layout.Buffer       // own, by number
	known   map[uint64]layout.Ref // by serial number
	tables  map[uint64]int        // by serial number: buffers from before that were handed over
	owed    map[layout.Ref]int    // references that something must still end
	makers  map[layout.Ref]string // the call in which each of them began

	// Of the call that runs.
	call    string
	events  []layout.RefChange
	births  []int // numbers of the buffers that were born, in order
	again   []int // where the call was recorded before: those of that time
	bounded bool  // the next size is a bound
	fault   error
}

// record runs a call and writes down what it does.
func (t *tape[T]) record(call string, f func() error) error {
	t.call, t.events, t.births, t.bounded = call, nil, nil, false
	t.watched.Watch(t.changed)
	t.frames.Dry(func() { t.bounded = true })
	err := t.run(f)
	t.watched.Watch(nil)
	t.frames.Dry(nil)
	if err == nil {
		err = t.fault
	}
	return err
}

// run calls f, and returns the failure of a view that unwinds.
func (t *tape[T]) run(f func() error) (err error) {
	defer t.frames.Recover(&err)
	return f()
}

// changed writes down a change.
func (t *tape[T]) changed(c memory.Change) {
	if c.Op == memory.Allocated {
		t.born(c)
		return
	}
	ref, ok := t.known[c.Serial]
	if !ok {
		return
	}
	if c.Op == memory.Retained {
		t.owe(ref, 1)
		t.events = append(t.events, layout.RefChange{Op: layout.Retain, Ref: ref})
		return
	}
	t.owe(ref, -1)
	t.events = append(t.events, layout.RefChange{Op: layout.Release, Ref: ref})
}

// born gives a new buffer its number: the one that it had where the call was recorded
// before.
func (t *tape[T]) born(c memory.Change) {
	b := layout.Buffer{Bytes: c.Bytes, Class: c.Class, AtMost: t.bounded}
	t.bounded = false
	number := len(t.buffers)
	switch {
	case c.Class.Lasting():
		t.fail("it allocates %d bytes of class %v, which is for what is there before a step and after it: allocate them when the stage is made", c.Bytes, c.Class)
		return
	case len(t.births) < len(t.again):
		number = t.again[len(t.births)]
		if b.Name = t.buffers[number].Name; t.buffers[number] != b {
			t.fail("it allocates %d bytes (%v) where it allocated %d (%v) at first: it depends on something besides the shape, say it with AtMost",
				b.Bytes, b.Class, t.buffers[number].Bytes, t.buffers[number].Class)
			return
		}
	default:
		t.buffers = append(t.buffers, b)
	}
	ref := layout.Ref{Kind: layout.Own, Index: number}
	t.births = append(t.births, number)
	t.known[c.Serial] = ref
	t.owe(ref, 1)
	t.events = append(t.events, layout.RefChange{Op: layout.Alloc, Ref: ref})
}

func (t *tape[T]) owe(ref layout.Ref, references int) {
	if t.owed[ref] += references; references > 0 {
		t.makers[ref] = t.call
	}
}

func (t *tape[T]) fail(format string, args ...any) {
	if t.fault == nil {
		t.fault = fmt.Errorf(format, args...)
	}
}

// lent says what a buffer is to the calls from now on. One that is lent twice keeps
// its first name.
func (t *tape[T]) lent(kind layout.RefKind, index int, h T) {
	if serial, there := t.watched.Serial(h); there && t.known[serial] == (layout.Ref{}) {
		t.known[serial] = layout.Ref{Kind: kind, Index: index}
	}
}

// handed writes down that a call hands a reference over, and returns to what.
func (t *tape[T]) handed(h T) layout.Ref {
	serial, there := t.watched.Serial(h)
	if !there {
		return layout.Ref{}
	}
	if ref, ok := t.known[serial]; ok {
		t.owe(ref, -1)
		return ref
	}
	number, ok := t.tables[serial]
	if !ok {
		number = len(t.buffers)
		t.tables[serial] = number
		t.buffers = append(t.buffers, layout.Buffer{Bytes: t.space.Bytes(h), Class: memory.Resident})
	}
	return layout.Ref{Kind: layout.Own, Index: number}
}

// name names the buffers that the call has given birth to, after the slots that they were
// saved in, or else after the class: port returns what one that is handed over is called.
func (t *tape[T]) name(out []layout.Ref, saved iter.Seq2[string, T], port func(i int) string) {
	slots := map[layout.Ref]string{}
	for slot, h := range saved {
		if serial, there := t.watched.Serial(h); there {
			slots[t.known[serial]] = slot
		}
	}
	for _, number := range t.births {
		b := &t.buffers[number]
		b.Name = fmt.Sprintf("%v of %s", b.Class, t.call)
		if slot, ok := slots[layout.Ref{Kind: layout.Own, Index: number}]; ok {
			b.Name = fmt.Sprintf("slot %q", slot)
		}
		if i := slices.Index(out, layout.Ref{Kind: layout.Own, Index: number}); i >= 0 {
			b.Name = port(i)
		}
	}
}

// handedAll is handed for what a call returns through its ports, but for those whose
// bit is set in none.
func (t *tape[T]) handedAll(handles []T, none uint64) []layout.Ref {
	refs := make([]layout.Ref, len(handles))
	for i, h := range handles {
		if none>>i&1 == 0 {
			refs[i] = t.handed(h)
		}
	}
	return refs
}

// settled reports whether every reference has an end. Who is who called.
func (t *tape[T]) settled(who string) error {
	for number, b := range t.buffers {
		ref := layout.Ref{Kind: layout.Own, Index: number}
		if n := t.owed[ref]; n > 0 {
			return fmt.Errorf("%w: %s in %s: %d to a buffer of %d bytes (%v) that it allocated: release it, save it, or hand it over",
				ErrUnended, who, t.makers[ref], n, b.Bytes, b.Class)
		} else if n < 0 {
			return fmt.Errorf("%w: %s hands over a buffer of %d bytes (%v) more often than it has a reference: retain it", ErrUnended, who, b.Bytes, b.Class)
		}
	}
	for kind := layout.In; kind <= layout.PartRead; kind++ {
		for index := range 64 {
			ref := layout.Ref{Kind: kind, Index: index}
			if n := t.owed[ref]; n > 0 {
				return fmt.Errorf("%w: %s in %s: %d to %s %d that it retained: release it, save it, or hand it over",
					ErrUnended, who, t.makers[ref], n, lentNames[kind], index)
			} else if n < 0 {
				return fmt.Errorf("%w: %s hands over %s %d without a reference of its own: retain it", ErrUnended, who, lentNames[kind], index)
			}
		}
	}
	return nil
}

// lentNames are the kinds of what is lent, in words.
var lentNames = map[layout.RefKind]string{
	layout.In: "input", layout.GradOut: "the gradient of output", layout.PartRead: "entry part",
}
