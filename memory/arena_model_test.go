package memory_test

import (
	"maps"
	"slices"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-ml/weir/memory"
)

// ofASpan are the classes that Alloc places in the first gap or, for Resident, in the last: all
// but Loss, which is in scope Metadata.
var ofASpan = []memory.Class{
	memory.Resident, memory.Entry, memory.Activation, memory.ActGrad, memory.Saved, memory.Carry, memory.Transfer, memory.Workspace,
	memory.FP8, memory.Unsharded,
}

// model is the simplest possible arena: a map of buffers.
type model struct {
	arena    *memory.Arena
	capacity int64
	align    int64
	base     uintptr
	live     map[memory.Handle]*buffer
	stale    []memory.Handle
	stats    memory.Stats // without Reserved
	touched  []bool       // bytes that a buffer or its padding ever covered
	serial   uint64
}

type buffer struct {
	class       memory.Class
	off, bytes  int64
	plain, held int64
	serial      uint64
	fill        byte
}

func (m *model) padded(bytes int64) int64 { return (bytes + m.align - 1) / m.align * m.align }

// place returns the offset at which a buffer must be placed, in the lowest gap that fits or, for
// Resident, in the highest, and the size of the largest gap. ok is false if no gap fits.
func (m *model) place(class memory.Class, bytes int64) (off, largest int64, ok bool) {
	used := slices.SortedFunc(maps.Values(m.live), func(x, y *buffer) int { return int(x.off - y.off) })
	size, end := m.padded(bytes), int64(0)
	for _, b := range append(used, &buffer{off: m.capacity}) {
		gap := b.off - end
		largest = max(largest, gap)
		if gap >= size && (class == memory.Resident || !ok) {
			off, ok = end, true
			if class == memory.Resident {
				off = b.off - size
			}
		}
		end = b.off + m.padded(b.bytes)
	}
	return off, largest, ok
}

func (m *model) end(h memory.Handle) int64 {
	b := m.live[h]
	delete(m.live, h)
	m.stale = append(m.stale, h)
	m.stats.Live -= b.bytes
	m.stats.Classes[b.class] -= b.bytes
	m.stats.Frees++
	return b.bytes
}

// any returns a handle that is live in most cases, otherwise stale or zero.
func (m *model) any(t *rapid.T) memory.Handle {
	live := slices.SortedFunc(maps.Keys(m.live), func(x, y memory.Handle) int {
		return int(m.live[x].serial) - int(m.live[y].serial)
	})
	switch i := rapid.IntRange(-2, 40).Draw(t, "handle"); {
	case i == -2:
		return memory.Handle{}
	case i == -1 && len(m.stale) > 0:
		return m.stale[rapid.IntRange(0, len(m.stale)-1).Draw(t, "stale")]
	case len(live) > 0:
		return live[max(i, 0)%len(live)]
	}
	return memory.Handle{}
}

// missing returns the error for a handle without a buffer.
func (m *model) missing(h memory.Handle) error {
	if h == (memory.Handle{}) {
		return memory.ErrNone
	}
	return memory.ErrStale
}

// same compares the result of a call with the model's.
func same(t *rapid.T, want, got int64, wantErr, err error) {
	require.ErrorIs(t, err, wantErr)
	require.Equal(t, want, got)
}

func (m *model) Alloc(t *rapid.T) {
	class := rapid.SampledFrom(ofASpan).Draw(t, "class")
	bytes := rapid.Int64Range(1, m.capacity/3).Draw(t, "bytes")
	off, largest, fits := m.place(class, bytes)
	h, err := m.arena.Alloc(class, bytes)
	if !fits {
		require.ErrorIs(t, err, memory.ErrOutOfMemory)
		require.Less(t, largest, m.padded(bytes))
		return
	}
	require.NoError(t, err)
	require.NotContains(t, m.live, h)
	require.NotContains(t, m.stale, h, "a handle is used only once")
	data, err := m.arena.Data(h)
	require.NoError(t, err)
	if m.base == 0 {
		m.base = uintptr(unsafe.Pointer(&data[0])) - uintptr(off)
	}
	require.Equal(t, off, int64(uintptr(unsafe.Pointer(&data[0]))-m.base), "placement")
	b := &buffer{class: class, off: off, bytes: bytes, plain: 1, serial: m.serial, fill: byte(m.serial)}
	for i := range data {
		data[i] = b.fill
	}
	m.live[h] = b
	m.serial++
	for i := off; i < off+m.padded(bytes); i++ {
		m.touched[i] = true
	}
	m.stats.Allocs++
	m.stats.Live += bytes
	m.stats.Classes[class] += bytes
	if m.stats.Live > m.stats.Peak {
		m.stats.Peak, m.stats.PeakClasses = m.stats.Live, m.stats.Classes
	}
}

func (m *model) Retain(t *rapid.T) {
	h := m.any(t)
	err := m.arena.Retain(h)
	if b := m.live[h]; b == nil {
		require.ErrorIs(t, err, m.missing(h))
	} else {
		require.NoError(t, err)
		b.plain++
	}
}

func (m *model) Release(t *rapid.T) {
	h := m.any(t)
	got, err := m.arena.Release(h)
	switch b := m.live[h]; {
	case b == nil:
		same(t, 0, got, m.missing(h), err)
	case b.plain == 0:
		same(t, 0, got, memory.ErrNoPlain, err)
	case b.plain+b.held > 1:
		b.plain--
		same(t, 0, got, nil, err)
	default:
		same(t, m.end(h), got, nil, err)
	}
}

func (m *model) Hold(t *rapid.T) {
	h := m.any(t)
	got, err := m.arena.Hold(h)
	switch b := m.live[h]; {
	case b == nil:
		same(t, 0, got, m.missing(h), err)
	case b.plain == 0:
		same(t, 0, got, memory.ErrNoPlain, err)
	default:
		want := int64(0)
		if b.held == 0 {
			want = b.bytes
		}
		b.plain, b.held = b.plain-1, b.held+1
		same(t, want, got, nil, err)
	}
}

func (m *model) Unhold(t *rapid.T) {
	h := m.any(t)
	got, err := m.arena.Unhold(h)
	switch b := m.live[h]; {
	case b == nil:
		same(t, 0, got, m.missing(h), err)
	case b.held == 0:
		same(t, 0, got, memory.ErrNotHeld, err)
	default:
		want := int64(0)
		if b.held == 1 {
			want = b.bytes
		}
		b.plain, b.held = b.plain+1, b.held-1
		same(t, want, got, nil, err)
	}
}

func (m *model) UnholdAndRelease(t *rapid.T) {
	h := m.any(t)
	unheld, freed, class, err := m.arena.UnholdAndRelease(h)
	switch b := m.live[h]; {
	case b == nil:
		same(t, 0, unheld+freed, m.missing(h), err)
	case b.held == 0:
		same(t, 0, unheld+freed, memory.ErrNotHeld, err)
	default:
		require.Equal(t, b.class, class)
		var want [2]int64
		if b.held--; b.held == 0 {
			want[0] = b.bytes
			if b.plain == 0 {
				want[1] = m.end(h)
			}
		}
		same(t, want[0], unheld, nil, err)
		require.Equal(t, want[1], freed)
	}
}

func (m *model) Reclaim(t *rapid.T) {
	mark := m.serial - min(m.serial, rapid.Uint64Range(0, 8).Draw(t, "back"))
	want := int64(0)
	for h, b := range m.live {
		if b.serial >= mark && b.class != memory.Resident {
			want += m.end(h)
		}
	}
	require.Equal(t, m.serial, m.arena.Mark())
	require.Equal(t, want, m.arena.Reclaim(mark))
}

func (m *model) ResetPeak(t *rapid.T) {
	m.arena.ResetPeak()
	m.stats.Peak, m.stats.PeakClasses = m.stats.Live, m.stats.Classes
}

// Check runs after every action.
func (m *model) Check(t *rapid.T) {
	require.NoError(t, m.arena.Check())
	require.Equal(t, m.stats.Live, m.arena.Live())
	var s memory.Stats
	m.arena.Stats(&s)
	want := m.stats
	for _, touched := range m.touched {
		if touched {
			want.Reserved++
		}
	}
	require.Equal(t, want, s)
	require.Equal(t, len(m.live), len(slices.Collect(m.arena.All())))
	for h, b := range m.live {
		require.Equal(t, b.bytes, m.arena.Bytes(h))
		require.Equal(t, b.class, m.arena.Class(h))
		data, err := m.arena.Data(h)
		require.NoError(t, err)
		require.Len(t, data, int(b.bytes))
		for _, x := range data {
			if x != b.fill {
				t.Fatalf("handle %v (%s, %d bytes at %d): its contents were overwritten", h, b.class, b.bytes, b.off)
			}
		}
	}
	for info := range m.arena.All() {
		b := m.live[info.Handle]
		require.Equal(t, memory.Info{Handle: info.Handle, Class: b.class, Bytes: b.bytes, Plain: b.plain, Held: b.held, Serial: b.serial, Offset: info.Offset}, info)
	}
}

// Random calls have the same effect on an arena as on the model.
func TestArenaAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &model{align: 1 << rapid.IntRange(0, 7).Draw(t, "align"), live: map[memory.Handle]*buffer{}}
		m.capacity = m.padded(rapid.Int64Range(1000, 8000).Draw(t, "capacity"))
		m.touched = make([]bool, m.capacity)
		m.arena = newArena(t, memory.ArenaConfig{Capacity: m.capacity, Align: m.align})
		defer m.arena.Close()
		t.Repeat(rapid.StateMachineActions(m))
	})
}
