package offload_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/engine/offload"
	"github.com/weir-ml/weir/internal/testing/testkit"
	"github.com/weir-ml/weir/memory"
)

// space is a memory.Movable whose buffers are slices.
type space struct{}

func (space) View(h *[]byte) ([]byte, error) { return *h, nil }

func (space) Like(_ memory.Class, h *[]byte) (*[]byte, error) {
	b := make([]byte, len(*h))
	return &b, nil
}

func buffer(fill byte, n int) *[]byte {
	b := bytes.Repeat([]byte{fill}, n)
	return &b
}

// lay returns a layout of consecutive buffers.
func lay(sizes ...int64) *memory.Layout {
	l := &memory.Layout{Places: []int32{0}}
	for _, n := range sizes {
		l.Allocations = append(l.Allocations, memory.Allocation{Offset: l.Height, Bytes: n, Class: memory.Saved})
		l.Places = append(l.Places, int32(len(l.Allocations)))
		l.Height += (n + 63) / 64 * 64
		l.Levels = append(l.Levels, memory.Level{})
	}
	return l
}

// start returns a far memory in a step with the layout.
func start(t *testing.T, r memory.Range, l *memory.Layout) *offload.Memory[*[]byte] {
	m, err := offload.New(space{}, r, 0)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	require.NoError(t, m.SetLayout(l))
	require.NoError(t, m.Start(len(l.Allocations)))
	return m
}

func store(t *testing.T, m *offload.Memory[*[]byte], place int, h *[]byte) int32 {
	m.SetPlace(place)
	number, err := m.Store(h)
	require.NoError(t, err)
	return number
}

func wait(m *offload.Memory[*[]byte], number int32) error {
	_, err := m.Wait(context.Background(), number)
	return err
}

func TestCopies(t *testing.T) {
	file, err := offload.File(t.TempDir())
	require.NoError(t, err)
	for name, r := range map[string]memory.Range{"heap": offload.Heap(), "file": file} {
		t.Run(name, func(t *testing.T) {
			m := start(t, r, lay(1000, 5000))
			for range 3 { // steps
				a, b := buffer(1, 1000), buffer(2, 5000)
				first, second := store(t, m, 0, a), store(t, m, 1, b)
				require.EqualValues(t, 6000, m.Live())
				require.NoError(t, wait(m, first))
				require.NoError(t, wait(m, second))
				clear(*a)
				clear(*b)
				require.NoError(t, m.Load(second, b))
				require.NoError(t, m.Load(first, a))
				require.NoError(t, wait(m, first))
				require.NoError(t, wait(m, second))
				require.Equal(t, buffer(1, 1000), a)
				require.Equal(t, buffer(2, 5000), b)
				freed, err := m.Free(first)
				require.NoError(t, err)
				require.EqualValues(t, 1000, freed)
				_, err = m.Free(second)
				require.NoError(t, err)
				require.Zero(t, m.Live())
				m.Stop()
				require.NoError(t, m.Start(2))
			}
		})
	}
}

// TestFile checks that the file is for its owner only, has no name, and has its space on the disk
// before the first copy.
func TestFile(t *testing.T) {
	folder := t.TempDir()
	r, err := offload.File(folder)
	require.NoError(t, err)
	f := r.(interface{ Stat() (fs.FileInfo, error) })
	info, err := f.Stat()
	require.NoError(t, err)
	if runtime.GOOS != "windows" {
		require.EqualValues(t, 0o600, info.Mode().Perm())
		left, err := os.ReadDir(folder)
		require.NoError(t, err)
		require.Empty(t, left)
	}
	start(t, r, lay(1<<20))
	info, err = f.Stat()
	require.NoError(t, err)
	require.GreaterOrEqual(t, info.Size(), int64(1<<20))
	if runtime.GOOS == "linux" {
		blocks := reflect.ValueOf(info.Sys()).Elem().FieldByName("Blocks").Int() // of 512 bytes
		require.GreaterOrEqual(t, blocks*512, int64(1<<20))
	}
	require.Error(t, r.Commit(0, 1<<62), "a disk of this size")
	info, err = f.Stat()
	require.NoError(t, err)
	require.Less(t, info.Size(), int64(1<<30), "the refused part is given back")

	_, err = offload.File(filepath.Join(folder, "none"))
	require.ErrorIs(t, err, fs.ErrNotExist)
}

// broken is a range whose errors a test controls.
type broken struct {
	memory.Range
	commit, write, read error
	short               int           // the number of bytes that ReadAt and WriteAt omit
	held                chan struct{} // if set, WriteAt waits until it is closed
	writes              []int64
}

func (b *broken) Commit(low, high int64) error {
	return errors.Join(b.commit, b.Range.Commit(low, high))
}

func (b *broken) WriteAt(p []byte, off int64) (int, error) {
	b.writes = append(b.writes, off)
	if b.held != nil {
		<-b.held
	}
	if b.write != nil {
		return 0, b.write
	}
	return b.Range.WriteAt(p[:len(p)-b.short], off)
}

func (b *broken) ReadAt(p []byte, off int64) (int, error) {
	if b.read != nil {
		return 0, b.read
	}
	return b.Range.ReadAt(p[:len(p)-b.short], off)
}

func TestErrors(t *testing.T) {
	for name, c := range map[string]struct {
		leaving, returning broken
		want               error
	}{
		"disk full":   {leaving: broken{write: syscall.ENOSPC}, want: syscall.ENOSPC},
		"short write": {leaving: broken{short: 1}, want: io.ErrShortWrite},
		"bad sector":  {returning: broken{read: syscall.EIO}, want: syscall.EIO},
		"short read":  {returning: broken{short: 7}, want: io.ErrUnexpectedEOF},
	} {
		t.Run(name, func(t *testing.T) {
			r := &broken{Range: offload.Heap()}
			m := start(t, r, lay(100))
			heap := r.Range
			*r = c.leaving
			r.Range = heap
			h := buffer(3, 100)
			number := store(t, m, 0, h)
			err := wait(m, number)
			if err == nil {
				*r = c.returning
				r.Range = heap
				require.NoError(t, m.Load(number, h))
				err = wait(m, number)
			}
			require.ErrorIs(t, err, c.want)
			require.ErrorContains(t, err, "offload: a copy of 100 bytes")
			m.Stop()
			require.EqualValues(t, 100, m.Live())
			m.Reclaim(0)
			require.Zero(t, m.Live())
		})
	}
}

func TestChecksum(t *testing.T) {
	r := offload.Heap()
	m := start(t, r, lay(100))
	h := buffer(3, 100)
	number := store(t, m, 0, h)
	require.NoError(t, wait(m, number))
	_, err := r.WriteAt([]byte{4}, 50)
	require.NoError(t, err)
	require.NoError(t, m.Load(number, h))
	require.ErrorIs(t, wait(m, number), offload.ErrChecksum)
}

func TestRefused(t *testing.T) {
	m, err := offload.New(space{}, &broken{Range: offload.Heap(), commit: syscall.ENOSPC}, 0)
	require.NoError(t, err)
	err = m.SetLayout(lay(100))
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.ErrorIs(t, err, memory.ErrOutOfMemory)
	require.NoError(t, m.Close())

	m, err = offload.New(space{}, offload.Heap(), 4096)
	require.NoError(t, err)
	require.ErrorIs(t, m.SetLayout(lay(4097)), memory.ErrOutOfMemory, "more than the limit")
	require.NoError(t, m.SetLayout(lay(4096)))
	require.NoError(t, m.Start(1))
	m.SetPlace(0)
	_, err = m.Store(buffer(1, 4000))
	require.ErrorIs(t, err, memory.ErrUnplanned)
	number := store(t, m, 0, buffer(1, 4096))
	require.NoError(t, wait(m, number))
	require.ErrorContains(t, m.Load(number, buffer(1, 5)), "a copy has 4096 bytes, but the buffer has 5")
	_, err = m.Store(buffer(1, 4096))
	require.ErrorIs(t, err, memory.ErrUnplanned)
	require.NoError(t, m.Close())
}

// TestAsynchronous blocks the range. Store and Load do not block, only Wait does, and a canceled
// context ends the wait. Stop returns when no lane uses a buffer, and discards copies that have not
// begun. The bubble ends only if no goroutines are left.
func TestAsynchronous(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &broken{Range: offload.Heap()}
		m := start(t, r, lay(100, 100, 100, 100))
		back := buffer(9, 100)
		there := store(t, m, 0, back)
		require.NoError(t, wait(m, there))

		r.held, r.writes = make(chan struct{}), nil
		running := store(t, m, 1, buffer(1, 100))
		store(t, m, 2, buffer(2, 100))
		synctest.Wait()
		require.NoError(t, m.Load(there, back), "the other lane is free")
		require.NoError(t, wait(m, there))
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("stopped"))
		waited, err := m.Wait(ctx, running)
		require.EqualError(t, err, "stopped")
		require.True(t, waited)

		stopped := false
		go func() {
			m.Stop()
			stopped = true
		}()
		synctest.Wait()
		require.False(t, stopped, "the lane reads the buffer")
		close(r.held)
		synctest.Wait()
		require.True(t, stopped)
		require.Equal(t, []int64{128}, r.writes, "the second copy is not made")

		m.Reclaim(0)
		require.NoError(t, m.Start(4)) // the next step
		r.held = nil
		again := store(t, m, 0, back)
		synctest.Wait()
		waited, err = m.Wait(t.Context(), again)
		require.NoError(t, err)
		require.False(t, waited)
		m.Stop()
	})
}

func TestNoAllocations(t *testing.T) {
	m := start(t, offload.Heap(), lay(4096))
	h, ctx := buffer(1, 4096), context.Background()
	steps := func() {
		for range 100 {
			m.SetPlace(0)
			number, _ := m.Store(h)
			_, _ = m.Wait(ctx, number)
			_ = m.Load(number, h)
			_, _ = m.Wait(ctx, number)
			_, _ = m.Free(number)
		}
	}
	require.Zero(t, testkit.Allocations(steps, 0))
}
