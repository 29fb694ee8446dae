package kerneltest

import (
	"encoding/binary"
	"errors"
	"math"
	"slices"

	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/memory/memorytest"
)

func memoryCases() []Case {
	return []Case{
		{Name: "memory/space", Null: true, Check: space},
		newCase("memory/types", true, types),
		newCase("memory/scopes", true, scopes),
		newCase("memory/copies", false, copies),
		newCase("memory/copies refused", true, copiesRefused),
		newCase("memory/lend", true, lend),
	}
}

// space checks the device against the contract of memory.Space.
func space(d kernels.Compute) error {
	alloc := func(class memory.Class, bytes int64) (kernels.Buffer, error) {
		b, err := d.Alloc(class, kernels.Uint8, int(bytes))
		if err == nil {
			err = d.WriteUint8(b, make([]uint8, bytes)) // weights are written out
		}
		return b, err
	}
	return errors.Join(memorytest.Faults(func() (memorytest.Subject[kernels.Buffer], error) {
		return memorytest.Subject[kernels.Buffer]{Space: d, Alloc: alloc}, nil
	})...)
}

// types allocates buffers of every type, and invalid ones.
func types(l *lab) {
	for i := range 9 {
		n, t := 1+i*i, kernels.DType(i%3)
		b, err := l.d.Alloc(memory.Saved, t, n)
		l.must("Alloc", err)
		bytes := int64(n) * t.Bytes()
		if b.N != n || b.Type != t || l.d.Bytes(b) != bytes {
			l.fault("Alloc of %d %s returned %+v of %d bytes", n, t, b, l.d.Bytes(b))
		}
		freed, err := l.d.Release(b)
		l.must("Release", err)
		if freed != bytes {
			l.fault("Release of %d %s freed %d bytes", n, t, freed)
		}
	}
	before := l.d.Live()
	for t := range kernels.Uint8 + 1 { // an expert without tokens
		empty, err := l.d.Alloc(memory.Saved, t, 0)
		l.must("Alloc of 0 elements", err)
		if bytes := l.d.Bytes(empty); empty.N != 0 || bytes != 1 {
			l.fault("Alloc of 0 elements returned %+v of %d bytes, want 0 elements in 1 byte", empty, bytes)
		}
		if t == kernels.Float32 {
			l.must("Zero of 0 elements", l.d.Zero(empty))
			l.must("Copy of 0 elements", l.d.Copy(empty, empty))
		}
		_, err = l.d.Release(empty)
		l.must("Release", err)
	}
	for _, n := range []int{-1, math.MaxInt} {
		if b, err := l.d.Alloc(memory.Saved, kernels.Float32, n); err == nil {
			l.fault("Alloc of %d elements returned %+v", n, b)
		}
	}
	if _, err := l.d.Alloc(memory.Saved, kernels.DType(99), 1); err == nil {
		l.fault("Alloc of an unknown type returned no error")
	}
	if err := l.d.Zero(kernels.Buffer{}); err == nil {
		l.fault("Zero of no buffer returned no error")
	}
	if l.d.Live() != before {
		l.fault("refused allocations left %d bytes live, want %d", l.d.Live(), before)
	}
}

// copies checks that reads return what was written, in whole buffers and in parts.
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

// lend checks the views that a Lender returns of its buffers.
func lend(l *lab) {
	lender, ok := l.d.(kernels.Lender)
	if !ok {
		return
	}
	x := l.normal(100, 1)
	b, gone := l.put("b", x), l.result("gone", 3)
	l.buffers = slices.DeleteFunc(l.buffers, func(h expected) bool { return h.buffer == gone })
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
	l.refuse("Lend of a released buffer", memory.ErrStale, func() error { _, err := lender.Lend(gone); return err })
}

// scopes checks that the buffers of every resident scope are Resident in the book, that they
// survive a Reclaim, and that AllocIn fails for the scope of steps.
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

// copiesRefused checks that copies which do not fit a buffer or its type fail.
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
