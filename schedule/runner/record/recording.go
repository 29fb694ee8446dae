package record

import (
	"fmt"
	"iter"
	"slices"

	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule/layout"
	"github.com/weir-ml/weir/schedule/runner/internal/calls"
)

// recording records how calls change the references to the buffers that they allocate and to the buffers
// that are lent to them. It ignores all other buffers, which outlive the calls.
type recording[T any] struct {
	rank    *calls.Caller[T]
	watched memory.Watched[T] // the space of the rank

	buffers   []layout.Buffer       // the buffers of kind layout.Own, by number
	known     map[uint64]layout.Ref // by serial number
	residents map[uint64]int        // by serial number: see recorder
	open      map[layout.Ref]int    // number of references to each buffer that have not ended
	makers    map[layout.Ref]string // the call in which the latest reference to each buffer began

	// State of the running call.
	running string // name of the call
	events  []layout.RefChange
	births  []int // the numbers of the buffers that the call has allocated, in order
	earlier []int // the births of an earlier recording of the call, or nil
	bounded bool  // the next size is an upper bound
	fault   error
}

// record returns an empty recording of calls on a rank. New buffers are numbered after the given
// ones.
func (r *recorder[T]) record(rank *calls.Caller[T], buffers []layout.Buffer) *recording[T] {
	return &recording[T]{
		rank: rank, watched: r.spaces[rank.Rank], buffers: slices.Clone(buffers),
		known: map[uint64]layout.Ref{}, residents: map[uint64]int{}, open: map[layout.Ref]int{}, makers: map[layout.Ref]string{},
	}
}

// call makes a call and records it.
func (r *recording[T]) call(name string, f func() error) error {
	r.running, r.events, r.births, r.bounded = name, nil, nil, false
	r.watched.Watch(r.add)
	r.rank.Frames.Dry(func() { r.bounded = true })
	err := func() (err error) {
		defer r.rank.Frames.Recover(&err)
		return f()
	}()
	r.watched.Watch(nil)
	r.rank.Frames.Dry(nil)
	if err == nil {
		err = r.fault
	}
	return err
}

// add records a change to a buffer's references.
func (r *recording[T]) add(c memory.Change) {
	if c.Op == memory.Allocated {
		r.addBirth(c)
		return
	}
	ref, ok := r.known[c.Serial]
	if !ok {
		return
	}
	change := layout.RefChange{Op: layout.Release, Ref: ref}
	if c.Op == memory.Retained {
		change.Op = layout.Retain
		r.addReference(ref)
	} else {
		r.open[ref]--
	}
	r.events = append(r.events, change)
}

// addBirth records an allocation. If the call was recorded before, the buffer gets the same number as in that
// recording, and must have the same size and class.
func (r *recording[T]) addBirth(c memory.Change) {
	b := layout.Buffer{Bytes: c.Bytes, Class: c.Class, AtMost: r.bounded}
	r.bounded = false
	number := len(r.buffers)
	switch {
	case c.Class.Lasting():
		r.fail("it allocates %d bytes of class %v, whose buffers exist before and after a step: allocate them when the stage is made", c.Bytes, c.Class)
		return
	case len(r.births) < len(r.earlier):
		number = r.earlier[len(r.births)]
		if b.Name = r.buffers[number].Name; r.buffers[number] != b {
			r.fail("it allocates %d bytes (%v), but its first call allocated %d (%v): declare a size that depends on more than the shape with AtMost",
				b.Bytes, b.Class, r.buffers[number].Bytes, r.buffers[number].Class)
			return
		}
	default:
		r.buffers = append(r.buffers, b)
	}
	ref := layout.Ref{Kind: layout.Own, Index: number}
	r.births = append(r.births, number)
	r.known[c.Serial] = ref
	r.addReference(ref)
	r.events = append(r.events, layout.RefChange{Op: layout.Alloc, Ref: ref})
}

// addReference counts a new reference.
func (r *recording[T]) addReference(ref layout.Ref) {
	r.open[ref]++
	r.makers[ref] = r.running
}

// fail records the first fault of the running call.
func (r *recording[T]) fail(format string, args ...any) {
	if r.fault == nil {
		r.fault = fmt.Errorf(format, args...)
	}
}

// lend records that a buffer is lent to all later calls. A buffer that is lent twice keeps its first
// Ref.
func (r *recording[T]) lend(kind layout.RefKind, index int, h T) {
	if serial, ok := r.watched.Serial(h); ok && r.known[serial] == (layout.Ref{}) {
		r.known[serial] = layout.Ref{Kind: kind, Index: index}
	}
}

// lendAll lends the buffers of all ports.
func (r *recording[T]) lendAll(kind layout.RefKind, handles []T) {
	for i, h := range handles {
		r.lend(kind, i, h)
	}
}

// handedOver records that a call hands over a reference, and returns the Ref of its buffer, or the zero Ref
// if the space does not have it. A buffer that the calls neither allocate nor borrow counts as resident.
func (r *recording[T]) handedOver(h T) layout.Ref {
	serial, ok := r.watched.Serial(h)
	if !ok {
		return layout.Ref{}
	}
	if ref, ok := r.known[serial]; ok {
		r.open[ref]--
		return ref
	}
	number, ok := r.residents[serial]
	if !ok {
		number = len(r.buffers)
		r.residents[serial] = number
		r.buffers = append(r.buffers, layout.Buffer{Bytes: r.rank.Space.Bytes(h), Class: memory.Resident})
	}
	return layout.Ref{Kind: layout.Own, Index: number}
}

// allHandedOver calls handedOver for the results of all ports.
func (r *recording[T]) allHandedOver(handles []T) []layout.Ref {
	refs := make([]layout.Ref, len(handles))
	for i, h := range handles {
		refs[i] = r.handedOver(h)
	}
	return refs
}

// name names the buffers that the call has allocated: after the port that hands them over, the slot
// in which they were saved, or else their class.
func (r *recording[T]) name(out, saved []layout.Ref, slots []string, port func(i int) string) {
	for _, number := range r.births {
		b, ref := &r.buffers[number], layout.Ref{Kind: layout.Own, Index: number}
		b.Name = fmt.Sprintf("%v of %s", b.Class, r.running)
		if slot := slices.Index(saved, ref); slot >= 0 {
			b.Name = fmt.Sprintf("slot %q", slots[slot])
		}
		if i := slices.Index(out, ref); i >= 0 {
			b.Name = port(i)
		}
	}
}

// slots returns the Ref of the buffer in each of n slots, or the zero Ref for an empty slot.
func (r *recording[T]) slots(n int, saved iter.Seq2[int, T]) []layout.Ref {
	list := make([]layout.Ref, n)
	for i, h := range saved {
		if serial, ok := r.watched.Serial(h); ok {
			list[i] = r.known[serial]
		}
	}
	return list
}

// checkEnds returns an error unless every reference has ended. who is the subject of the error.
func (r *recording[T]) checkEnds(who string) error {
	for number, b := range r.buffers {
		ref := layout.Ref{Kind: layout.Own, Index: number}
		if n := r.open[ref]; n > 0 {
			return fmt.Errorf("%w: %s in %s: %d to a buffer of %d bytes (%v) that it allocated: release it, save it, or hand it over",
				ErrUnended, who, r.makers[ref], n, b.Bytes, b.Class)
		} else if n < 0 {
			return fmt.Errorf("%w: %s hands over a buffer of %d bytes (%v) more often than it has a reference: retain it", ErrUnended, who, b.Bytes, b.Class)
		}
	}
	for kind := layout.In; kind <= layout.PartRead; kind++ {
		for index := range 64 {
			ref := layout.Ref{Kind: kind, Index: index}
			if n := r.open[ref]; n > 0 {
				return fmt.Errorf("%w: %s in %s: %d to %s %d that it retained: release it, save it, or hand it over",
					ErrUnended, who, r.makers[ref], n, lentNames[kind], index)
			} else if n < 0 {
				return fmt.Errorf("%w: %s hands over %s %d without a reference of its own: retain it", ErrUnended, who, lentNames[kind], index)
			}
		}
	}
	return nil
}

// lentNames names the kinds of lent buffers.
var lentNames = map[layout.RefKind]string{
	layout.In: "input", layout.GradOut: "the gradient of output", layout.PartRead: "entry part",
}
