package fault_test

import (
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/memory"
)

// pool is an arena in which every allocation is an event. It embeds the arena, so it is its
// Space, its Book and its Reclaimer.
type pool struct {
	*memory.Arena
	events *events
}

func newPool(t testing.TB, events *events, capacity int64) *pool {
	arena, err := memory.NewArena(memory.ArenaConfig{Capacity: capacity})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, arena.Close()) })
	return &pool{arena, events}
}

// alloc returns a buffer of n float32 and a view of it.
func (p *pool) alloc(class memory.Class, n int) (memory.Handle, []float32, error) {
	if err := p.events.happen(atAlloc); err != nil {
		return memory.Handle{}, nil, err
	}
	h, err := p.Alloc(class, int64(4*n))
	if err != nil {
		return memory.Handle{}, nil, err
	}
	x, err := p.view(h)
	clear(x)
	return h, x, err
}

// twin returns a handle of another pool with the slot and the generation of h.
func twin(t testing.TB, other *pool, h memory.Handle) memory.Handle {
	t.Helper()
	slot, _, _ := strings.Cut(h.String(), ".")
	for range 1 << 16 {
		same, err := other.Alloc(memory.Workspace, 1)
		require.NoError(t, err)
		if same.String() == h.String() {
			return same
		}
		if strings.HasPrefix(same.String(), slot+".") {
			_, err = other.Release(same)
			require.NoError(t, err)
		}
	}
	t.Fatalf("the other pool did not return a handle %v", h)
	return h
}

// view returns the numbers of a handle.
func (p *pool) view(h memory.Handle) ([]float32, error) {
	data, err := p.Data(h)
	if err != nil {
		return nil, err
	}
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(data))), len(data)/4), nil
}

// book is the observable state of a pool between steps.
type book struct {
	live    int64
	classes memory.ByClass
	buffers []memory.Info
}

func (p *pool) book() book {
	var stats memory.Stats
	p.Stats(&stats)
	return book{stats.Live, stats.Classes, slices.Collect(p.All())}
}

// requireReleased requires that a book is unchanged: the bytes, every class, and every buffer
// with its references. A buffer that a frame or an entry still held would have a held reference.
func requireReleased(t testing.TB, before, after book) {
	t.Helper()
	require.Equal(t, before.live, after.live, "live bytes")
	require.Equal(t, before.classes, after.classes, "live bytes by class")
	require.Equal(t, before.buffers, after.buffers, "live buffers")
	for _, b := range after.buffers {
		require.Zero(t, b.Held, "%v is held between steps", b.Handle)
	}
}
