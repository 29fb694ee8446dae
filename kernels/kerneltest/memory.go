package kerneltest

import (
	"encoding/binary"
	"errors"
	"math"
	"slices"

	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
)

func memoryCases() []Case {
	return []Case{
		newCase("memory/book", true, book),
		newCase("memory/references", true, references),
		newCase("memory/reclaim", true, reclaim),
		newCase("memory/scopes", true, scopes),
		newCase("memory/copies", false, copies),
		newCase("memory/copies refused", true, copiesRefused),
		newCase("memory/lend", true, lend),
	}
}

// book allocates buffers of every class and releases them in another order.
func book(l *lab) {
	var base, s memory.Stats
	l.d.Stats(&base)
	l.d.ResetPeak()
	var all []kernels.Buffer
	var want memory.ByClass
	for i := range 3 * memory.NumClasses {
		class, n, t := memory.Class(i%memory.NumClasses), 1+i*i, kernels.DType(i%3)
		b, err := l.d.Alloc(class, t, n)
		l.must("Alloc", err)
		if b.N != n || b.Type != t || l.d.Class(b) != class || l.d.Bytes(b) != int64(n)*t.Bytes() {
			l.fault("Alloc of %d %s (%s) returned %+v of class %s and %d bytes", n, t, class, b, l.d.Class(b), l.d.Bytes(b))
		}
		want[class] += int64(n) * t.Bytes()
		all = append(all, b)
	}
	l.d.Stats(&s)
	for c := range want {
		if got := s.Classes[c] - base.Classes[c]; got != want[c] {
			l.fault("the book has %d bytes more of class %s, want %d", got, memory.Class(c), want[c])
		}
	}
	if got := s.Live - base.Live; got != want.Total() || s.Live != l.d.Live() {
		l.fault("the book has %d bytes more live, want %d; Stats says %d, Live %d", got, want.Total(), s.Live, l.d.Live())
	}
	if s.Reserved < s.Live || s.Peak < s.Live || s.Allocs-base.Allocs != int64(len(all)) {
		l.fault("the book is %+v after %d allocations", s, len(all))
	}
	l.rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for _, b := range all {
		freed, err := l.d.Release(b)
		l.must("Release", err)
		if freed != int64(b.N)*b.Type.Bytes() {
			l.fault("Release of %d %s freed %d bytes", b.N, b.Type, freed)
		}
	}
	if l.d.Live() != base.Live {
		l.fault("after every release %d bytes are live, want %d", l.d.Live(), base.Live)
	}
	for _, n := range []int{0, -1, math.MaxInt} {
		if b, err := l.d.Alloc(memory.Saved, kernels.Float32, n); err == nil {
			l.fault("Alloc of %d elements returned %+v", n, b)
		}
	}
	if _, err := l.d.Alloc(memory.Saved, kernels.DType(99), 1); err == nil {
		l.fault("Alloc of an unknown type returned no error")
	}
	if l.d.Live() != base.Live {
		l.fault("refused allocations left %d bytes live, want %d", l.d.Live(), base.Live)
	}
}

// references checks plain and held references, and stale handles.
func references(l *lab) {
	b, err := l.d.Alloc(memory.Activation, kernels.Float32, 10)
	l.must("Alloc", err)
	l.must("Retain", l.d.Retain(b))
	held, err := l.d.Hold(b)
	l.must("Hold", err)
	again, err := l.d.Hold(b)
	l.must("Hold", err)
	if held != 40 || again != 0 {
		l.fault("two Holds of 40 bytes returned %d and %d, want 40 and 0", held, again)
	}
	yielded, err := l.d.Yield(b)
	l.must("Yield", err)
	last, err := l.d.Yield(b)
	l.must("Yield", err)
	if yielded != 0 || last != 40 {
		l.fault("two Yields of 40 bytes returned %d and %d, want 0 and 40", yielded, last)
	}
	if _, err := l.d.Yield(b); !errors.Is(err, memory.ErrNotHeld) {
		l.fault("Yield of a buffer that nobody holds: %v", err)
	}
	freed, err := l.d.Release(b)
	l.must("Release", err)
	all, err := l.d.Release(b)
	l.must("Release", err)
	if freed != 0 || all != 40 {
		l.fault("two Releases of 40 bytes returned %d and %d, want 0 and 40", freed, all)
	}
	next, err := l.d.Alloc(memory.Activation, kernels.Float32, 10)
	l.must("Alloc", err)
	if _, err := l.d.Release(b); !errors.Is(err, memory.ErrStale) {
		l.fault("Release of a stale handle: %v", err)
	}
	if l.d.Bytes(b) != 0 {
		l.fault("a stale handle has %d bytes", l.d.Bytes(b))
	}
	if err := l.d.Zero(b); !errors.Is(err, memory.ErrStale) {
		l.fault("Zero of a stale handle: %v", err)
	}
	if err := l.d.Zero(kernels.Buffer{}); err == nil {
		l.fault("Zero of no buffer returned no error")
	}
	_, err = l.d.Release(next)
	l.must("Release", err)
}

// reclaim checks that what was allocated since a mark goes, and nothing else.
func reclaim(l *lab) {
	alloc := func(class memory.Class) kernels.Buffer {
		b, err := l.d.Alloc(class, kernels.Float32, 100)
		l.must("Alloc", err)
		return b
	}
	before := alloc(memory.Saved)
	mark := l.d.Mark()
	resident, lost, heldOne := alloc(memory.Resident), alloc(memory.Saved), alloc(memory.Carry)
	_, err := l.d.Hold(heldOne)
	l.must("Hold", err)
	if freed := l.d.Reclaim(mark); freed != 800 {
		l.fault("Reclaim freed %d bytes, want 800", freed)
	}
	for _, b := range []kernels.Buffer{lost, heldOne} {
		if _, err := l.d.Release(b); !errors.Is(err, memory.ErrStale) {
			l.fault("Release of a reclaimed buffer: %v", err)
		}
	}
	for _, b := range []kernels.Buffer{before, resident} {
		if _, err := l.d.Release(b); err != nil {
			l.fault("Release of a buffer that was to survive Reclaim: %v", err)
		}
	}
}

// copies checks that what was written is read, whole and in part.
func copies(l *lab) {
	x := l.normal(100, 1)
	b := l.put("b", x)
	l.exactly("ReadFloat32", l.read(b), x)
	l.must("WriteFloat32", l.d.WriteFloat32(b, []float32{7, 8}))
	copy(x, []float32{7, 8})
	part := make([]float32, 5)
	l.must("ReadFloat32", l.d.ReadFloat32(part, b))
	l.exactly("ReadFloat32 of a part", part, x[:5])
	l.exactly("ReadFloat32 after a write of a part", l.read(b), x)
	want := l.ids(100, 1<<30)
	c := l.putInts("c", want)
	got := make([]int32, 100)
	l.must("ReadInt32", l.d.ReadInt32(got, c))
	for i := range want {
		if got[i] != want[i] {
			l.fault("ReadInt32: element %d is %d, want %d", i, got[i], want[i])
		}
	}
	few := []uint8{1, 2, 250}
	d := l.putBytes("d", []uint8{9, 9, 9, 9, 7})
	l.must("WriteUint8", l.d.WriteUint8(d, few))
	if back := make([]uint8, 5); l.d.ReadUint8(back, d) != nil || !slices.Equal(back, []uint8{1, 2, 250, 9, 7}) {
		l.fault("ReadUint8 returned %v", back)
	}
	if l.silent {
		l.fault("the device keeps no content")
	}
}

// lend checks what a device shows to others of its buffers, where it does.
func lend(l *lab) {
	lender, ok := l.d.(kernels.Lender)
	if !ok {
		return
	}
	x := l.normal(100, 1)
	b, gone := l.put("b", x), l.result("gone", 3)
	l.held = slices.DeleteFunc(l.held, func(h held) bool { return h.b == gone })
	_, err := l.d.Release(gone)
	l.must("Release", err)
	l.do("Lend", func() error {
		data, err := lender.Lend(b)
		if len(data) != 400 && err == nil {
			l.fault("Lend of 400 bytes returned %d", len(data))
			return nil
		}
		for i := 0; i < len(data) && !l.silent; i += 4 {
			if got := math.Float32frombits(binary.NativeEndian.Uint32(data[i:])); got != x[i/4] {
				l.fault("Lend: element %d is %v, want %v", i/4, got, x[i/4])
			}
		}
		return err
	})
	l.refuse("Lend of a buffer that ended", memory.ErrStale, func() error { _, err := lender.Lend(gone); return err })
}

// scopes checks that buffers of every resident scope are Resident in the book, that they
// outlive a Reclaim, and that a scope for steps gives none.
func scopes(l *lab) {
	for _, scope := range []memory.Scope{memory.Weights, memory.Gradients, memory.Optimizer, memory.Metadata} {
		before, mark := l.d.Live(), l.d.Mark()
		b, err := l.d.AllocIn(scope, kernels.Int32, 100)
		l.must("AllocIn", err)
		if b.N != 100 || b.Type != kernels.Int32 || l.d.Class(b) != memory.Resident || l.d.Bytes(b) != 400 || l.d.Live() != before+400 {
			l.fault("AllocIn of 100 int32 in %s returned %+v of class %s and %d bytes; the book has %d bytes more", scope, b, l.d.Class(b), l.d.Bytes(b), l.d.Live()-before)
		}
		if freed := l.d.Reclaim(mark); freed != 0 {
			l.fault("Reclaim freed %d bytes of scope %s", freed, scope)
		}
		_, err = l.d.Release(b)
		l.must("Release", err)
		l.refuse("AllocIn of nothing", kernels.ErrShape, func() error { _, err := l.d.AllocIn(scope, kernels.Float32, 0); return err })
	}
	if _, err := l.d.AllocIn(memory.StepScope, kernels.Float32, 1); err == nil {
		l.fault("AllocIn of StepScope returned no error")
	}
}

// copiesRefused checks copies that do not fit.
func copiesRefused(l *lab) {
	f, i := l.put("f", make([]float32, 5)), l.putInts("i", make([]int32, 5))
	l.refuse("WriteFloat32 past the end", kernels.ErrShape, func() error { return l.d.WriteFloat32(f, make([]float32, 6)) })
	l.refuse("ReadFloat32 past the end", kernels.ErrShape, func() error { return l.d.ReadFloat32(make([]float32, 6), f) })
	l.refuse("WriteInt32 past the end", kernels.ErrShape, func() error { return l.d.WriteInt32(i, make([]int32, 6)) })
	l.refuse("ReadInt32 past the end", kernels.ErrShape, func() error { return l.d.ReadInt32(make([]int32, 6), i) })
	l.refuse("WriteFloat32 to int32", kernels.ErrShape, func() error { return l.d.WriteFloat32(i, make([]float32, 5)) })
	l.refuse("ReadFloat32 of int32", kernels.ErrShape, func() error { return l.d.ReadFloat32(make([]float32, 5), i) })
	l.refuse("WriteInt32 to float32", kernels.ErrShape, func() error { return l.d.WriteInt32(f, make([]int32, 5)) })
	u := l.putBytes("u", make([]uint8, 5))
	l.refuse("WriteUint8 past the end", kernels.ErrShape, func() error { return l.d.WriteUint8(u, make([]uint8, 6)) })
	l.refuse("ReadUint8 past the end", kernels.ErrShape, func() error { return l.d.ReadUint8(make([]uint8, 6), u) })
	l.refuse("WriteUint8 to float32", kernels.ErrShape, func() error { return l.d.WriteUint8(f, make([]uint8, 5)) })
	l.refuse("ReadUint8 of int32", kernels.ErrShape, func() error { return l.d.ReadUint8(make([]uint8, 5), i) })
	l.refuse("ReadInt32 of float32", kernels.ErrShape, func() error { return l.d.ReadInt32(make([]int32, 5), f) })
}
