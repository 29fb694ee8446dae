package memory_test

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/memory"
)

// device is a memory.Range over bytes of the test, whose pages are made present and discarded.
type device struct {
	mem     []byte
	pages   []bool
	room    int // number of pages that can still be made present
	commits int
	t       *testing.T
}

const devicePage = 8192

func (d *device) Page() int64 { return devicePage }

func (d *device) Reserve(bytes int64) error {
	require.Zero(d.t, bytes%devicePage)
	d.mem, d.pages = make([]byte, bytes), make([]bool, bytes/devicePage)
	return nil
}

func (d *device) Commit(low, high int64) error {
	d.commits++
	var fresh []int64
	for p := low / devicePage; p*devicePage < high; p++ {
		if !d.pages[p] {
			fresh = append(fresh, p)
		}
	}
	if len(fresh) > d.room {
		return errors.New("the device is full")
	}
	d.room -= len(fresh)
	for _, p := range fresh {
		d.pages[p] = true
	}
	return nil
}

func (d *device) Discard(low, high int64) error {
	require.Zero(d.t, low%devicePage)
	require.Zero(d.t, high%devicePage)
	for p := low / devicePage; p*devicePage < high; p++ {
		if d.pages[p] {
			d.pages[p] = false
			d.room++
			clear(d.mem[p*devicePage : (p+1)*devicePage])
		}
	}
	return nil
}

func (d *device) Present(low, high int64) (n int64) {
	for p := low / devicePage; p*devicePage < high; p++ {
		if d.pages[p] {
			n += devicePage
		}
	}
	return n
}

func (d *device) Release() error {
	d.mem, d.pages = nil, nil
	return nil
}

func (d *device) ReadAt(p []byte, off int64) (int, error) {
	d.use(off, len(p))
	return copy(p, d.mem[off:]), nil
}

func (d *device) WriteAt(p []byte, off int64) (int, error) {
	d.use(off, len(p))
	return copy(d.mem[off:], p), nil
}

// use requires pages to be present.
func (d *device) use(off int64, n int) {
	for p := off / devicePage; p*devicePage < off+int64(n); p++ {
		require.True(d.t, d.pages[p], "byte %d has no page", p*devicePage)
	}
}

// An arena over memory that the processor cannot read has the same books, offsets and scopes.
// Its pages come only from the range, which is not called within a step.
func TestFarArena(t *testing.T) {
	far := &device{t: t, room: 12}
	a := newArena(t, memory.ArenaConfig{Capacity: 20*devicePage - 1, Range: far})
	require.Len(t, far.mem, 20*devicePage)

	write := func(h memory.Handle, with byte) {
		off, n, err := a.Extent(h)
		require.NoError(t, err)
		_, err = far.WriteAt(bytes.Repeat([]byte{with}, int(n)), off)
		require.NoError(t, err)
	}
	weight, err := a.Alloc(memory.Resident, 3*devicePage/2)
	require.NoError(t, err)
	_, err = a.Data(weight)
	require.ErrorIs(t, err, memory.ErrFar)
	gradient, err := a.AllocIn(memory.Gradients, devicePage)
	require.NoError(t, err)
	moment, err := a.AllocIn(memory.Optimizer, 100)
	require.NoError(t, err)
	for i, h := range []memory.Handle{weight, gradient, moment} {
		write(h, byte(i+1))
	}

	layout := &memory.Layout{
		Height: 4*devicePage + 64, Places: []int32{0, 1}, Levels: make([]memory.Level, 1),
		Allocations: []memory.Allocation{{Offset: 64, Bytes: 4 * devicePage, Class: memory.Saved}},
	}
	for range 2 { // the second step finds all pages present
		require.NoError(t, a.SetLayout(layout))
		before := far.commits
		for range 10 {
			a.SetPlace(0)
			h, err := a.Alloc(memory.Saved, 4*devicePage)
			require.NoError(t, err)
			off, _, err := a.Extent(h)
			require.NoError(t, err)
			require.EqualValues(t, 64, off)
			write(h, 9)
			_, err = a.Release(h)
			require.NoError(t, err)
		}
		require.Equal(t, before, far.commits, "within a step")
		require.NoError(t, a.SetLayout(nil))
	}
	require.NoError(t, a.Check())
	require.EqualValues(t, devicePage, a.Scope(memory.Gradients).Pages)

	var file bytes.Buffer
	scopes := []memory.Scope{memory.StepScope, memory.Weights, memory.Gradients, memory.Optimizer}
	require.NoError(t, a.ReleasePages(&file, scopes...))
	require.Zero(t, far.Present(0, 20*devicePage))
	_, _, err = a.Extent(weight)
	require.ErrorIs(t, err, memory.ErrReleased)

	far.room = 2
	require.ErrorIs(t, a.RestorePages(bytes.NewReader(file.Bytes())), memory.ErrOutOfMemory)
	require.Zero(t, far.Present(0, 20*devicePage), "pages are returned")
	far.room = 12
	require.ErrorIs(t, a.RestorePages(io.LimitReader(bytes.NewReader(file.Bytes()), 100)), memory.ErrSaved)
	require.NoError(t, a.RestorePages(&file))
	for i, h := range []memory.Handle{weight, gradient, moment} {
		off, n, err := a.Extent(h)
		require.NoError(t, err)
		if h != gradient {
			require.Equal(t, bytes.Repeat([]byte{byte(i + 1)}, int(n)), far.mem[off:off+n])
		}
	}
	require.NoError(t, a.SetLayout(layout))
	require.NoError(t, a.SetLayout(nil))

	_, err = a.AllocIn(memory.Metadata, 9*devicePage)
	require.ErrorIs(t, err, memory.ErrOutOfMemory, "the range has room, the device has none")
	require.NoError(t, a.Check())
	require.NoError(t, a.Close())
	require.Nil(t, far.mem)

	_, err = memory.NewArena(memory.ArenaConfig{Range: memory.UnbackedRange(3)})
	require.ErrorContains(t, err, "power of two")
}
