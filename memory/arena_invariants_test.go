//go:build invariants

package memory_test

import (
	"bytes"
	"os"
	"runtime"
	"runtime/debug"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/memory"
)

func TestInvariantsOverlap(t *testing.T) {
	a := open(t, 1<<20, 0)
	h := alloc(t, a, memory.Saved, 100)
	a.Forget(h)
	require.PanicsWithValue(t, "memory: bytes 0 to 128 were to be placed over handle 1.1, which was not released",
		func() { _, _ = a.Alloc(memory.Saved, 100) })
}

func TestInvariantsOverlapOfAByte(t *testing.T) {
	a := open(t, 1<<20, 1)
	alloc(t, a, memory.Saved, 256)
	a.Obstruct(257)
	require.Panics(t, func() { _, _ = a.Alloc(memory.Saved, 100) })
}

func TestInvariantsPoison(t *testing.T) {
	a := open(t, 1<<20, 0)
	for _, class := range []memory.Class{memory.Saved, memory.Resident} {
		h := alloc(t, a, class, 100)
		data := bytesOf(t, a, h)
		poison := bytes.Repeat([]byte{0xDB}, 100)
		require.Equal(t, poison, data, "a new buffer")
		clear(data)
		release(t, a, h)
		require.Equal(t, poison, data, "a released buffer")

		// A write through a view after the release is reported once.
		data[99] = 7
		_, err := a.Alloc(class, 128)
		require.ErrorIs(t, err, memory.ErrStale)
		require.ErrorContains(t, err, "a view was written after its release")
		release(t, a, alloc(t, a, class, 128))
		require.NoError(t, a.Check())
	}
}

// A write behind a buffer, or before one that a layout placed, is reported when the buffer is
// released, if the bytes there belong to no other buffer.
func TestInvariantsCanaries(t *testing.T) {
	outside := func(a *memory.Arena, h memory.Handle, at int) *byte {
		data := bytesOf(t, a, h)
		return (*byte)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(data)), at))
	}
	overrun := func(a *memory.Arena, h memory.Handle, text string) {
		t.Helper()
		want := a.Bytes(h)
		freed, err := a.Release(h)
		require.ErrorIs(t, err, memory.ErrOverrun)
		require.ErrorContains(t, err, text)
		require.Equal(t, want, freed, "it ends all the same")
		require.NoError(t, a.Check())
	}
	a := open(t, 1<<20, 0)
	for _, scope := range []memory.Scope{memory.StepScope, memory.Weights, memory.Gradients, memory.Metadata} {
		h := allocIn(t, a, scope, 100)
		*outside(a, h, 127) = 1
		overrun(a, h, "100 bytes, allocation ")
		h = allocIn(t, a, scope, 128) // leaves no free bytes
		release(t, a, h)
	}
	zoned := newArena(t, memory.ArenaConfig{Capacity: 1 << 20, RedZone: 64})
	defer zoned.Close()
	h := alloc(t, zoned, memory.Saved, 128)
	*outside(zoned, h, 128) = 1
	overrun(zoned, h, "handle 1.1 (saved, 128 bytes, allocation 0): its owner or the owner of its neighbour wrote outside it, at offset 128 from its start")

	s := example() // 0 to 1000, 1000 to 1400
	for _, test := range []struct {
		of, at int
		text   string
	}{
		{1, 400, "(workspace, 400 bytes, allocation 1): its owner or the owner of its neighbour wrote outside it, at offset 400 from its start"},
		{1, 463, "its owner or the owner of its neighbour wrote outside it, at offset 463 from its start"},
		{0, 0, ""}, {0, 999, ""}, {0, 1000, ""}, // its own bytes, and its neighbour's
	} {
		a := open(t, 1<<20, 0)
		require.NoError(t, a.SetLayout(&s.layout))
		a.SetPlace(0)
		both := []memory.Handle{alloc(t, a, memory.Saved, 1000), alloc(t, a, memory.Workspace, 400)}
		*outside(a, both[test.of], test.at) = 1
		if test.text == "" {
			release(t, a, both...)
			require.NoError(t, a.SetLayout(nil))
			continue
		}
		release(t, a, both[0])
		overrun(a, both[1], test.text)
		require.ErrorIs(t, a.SetLayout(nil), memory.ErrOverrun)
	}

	require.NoError(t, a.SetLayout(&s.layout))
	a.SetPlace(0)
	first, second := alloc(t, a, memory.Saved, 1000), alloc(t, a, memory.Workspace, 400)
	release(t, a, first)
	*outside(a, second, -64) = 1
	overrun(a, second, "its owner or the owner of its neighbour wrote outside it, at offset -64 from its start")
	require.ErrorIs(t, a.SetLayout(nil), memory.ErrOverrun)
}

// A write of a step to bytes of no buffer is reported when the step ends.
func TestInvariantsSurvey(t *testing.T) {
	a := open(t, 1<<20, 0)
	s := example()
	touched := func(bytes, top int64) {
		t.Helper()
		gotBytes, gotTop, known := a.Touched()
		require.True(t, known)
		require.Equal(t, []int64{bytes, top}, []int64{gotBytes, gotTop})
	}
	step(t, a)
	touched(1400, 1400)

	require.NoError(t, a.SetLayout(&s.layout))
	a.SetPlace(1)
	third := alloc(t, a, memory.Activation, 996)
	data := bytesOf(t, a, third)
	release(t, a, third)
	require.NoError(t, a.SetLayout(nil))
	touched(996, 996)

	require.NoError(t, a.SetLayout(&s.layout))
	(*[2000]byte)(unsafe.Pointer(unsafe.SliceData(data)))[1500] = 3
	err := a.SetLayout(nil)
	require.ErrorIs(t, err, memory.ErrOverrun)
	require.EqualError(t, err, "memory: written beyond a buffer: a step wrote to byte 1500 of its part, which no buffer has now; the nearest is birth 1 of its layout (workspace, 400 bytes at 1000)")
	touched(1, 1501)
	require.NoError(t, a.SetLayout(&s.layout))
	data[500] = 3
	require.ErrorContains(t, a.SetLayout(nil), "byte 500 of its part, which no buffer has now; the nearest is birth 0 ", "of two at the same place the first")
	touched(1, 501)

	// Buffers that outlive a step count too.
	require.NoError(t, a.SetLayout(&s.layout))
	a.SetPlace(0)
	first := alloc(t, a, memory.Saved, 1000)
	require.NoError(t, a.SetLayout(nil))
	touched(1000, 1000)
	release(t, a, first)
	step(t, a)

	// A layout that is wrong by one byte: its second buffer begins in its first one.
	wrong := example()
	wrong.layout.Allocations[0].Bytes++
	require.NoError(t, a.SetLayout(&wrong.layout))
	a.SetPlace(0)
	first = alloc(t, a, memory.Saved, 1001)
	_, err = a.Alloc(memory.Workspace, 400)
	require.ErrorIs(t, err, memory.ErrOverlap)
	release(t, a, first)
	require.NoError(t, a.SetLayout(nil))
}

// The bytes next to the step's part, and next to the extents of a scope, are inaccessible.
func TestInvariantsGuards(t *testing.T) {
	if runtime.GOOS != "linux" && runtime.GOOS != "darwin" {
		t.Skip("there are no guards here")
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	page := os.Getpagesize()
	a := open(t, 64<<20, 0)
	touch := func(h memory.Handle, at int) {
		data := bytesOf(t, a, h)
		*(*byte)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(data)), at)) = 1
	}
	for scope := memory.Gradients; int(scope) < memory.NumScopes; scope++ {
		h := allocIn(t, a, scope, 100)
		size := int(a.Scope(scope).Reserved)
		require.Panics(t, func() { touch(h, -1) }, scope)
		require.Panics(t, func() { touch(h, size) }, scope)
		release(t, a, h)
	}
	s := example()
	require.NoError(t, a.SetLayout(&s.layout))
	a.SetPlace(0)
	h := alloc(t, a, memory.Saved, 1000)
	require.Panics(t, func() { touch(h, page) })
	release(t, a, h)
	require.NoError(t, a.SetLayout(nil))
	h = alloc(t, a, memory.Saved, int64(3*page))
	touch(h, page)
	release(t, a, h)
	require.NoError(t, a.Check())
}
