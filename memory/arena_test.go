package memory_test

import (
	"errors"
	"math"
	"math/bits"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/engine/invariants"
	"github.com/weir-ml/weir/memory"
)

// open returns an arena that is closed when the test ends.
func open(t testing.TB, capacity, align int64) *memory.Arena {
	t.Helper()
	a := newArena(t, memory.ArenaConfig{Capacity: capacity, Align: align})
	t.Cleanup(func() { require.NoError(t, a.Close()) })
	return a
}

func alloc(t testing.TB, a *memory.Arena, class memory.Class, bytes int64) memory.Handle {
	t.Helper()
	h, err := a.Alloc(class, bytes)
	require.NoError(t, err)
	return h
}

func release(t testing.TB, a *memory.Arena, handles ...memory.Handle) {
	t.Helper()
	for _, h := range handles {
		want := a.Bytes(h)
		freed, err := a.Release(h)
		require.NoError(t, err)
		require.Equal(t, want, freed)
	}
}

// address returns the address of a buffer.
func address(t testing.TB, a *memory.Arena, h memory.Handle) int64 {
	t.Helper()
	data := bytesOf(t, a, h)
	return addressOf(data)
}

func addressOf(data []byte) int64 { return int64(uintptr(unsafe.Pointer(unsafe.SliceData(data)))) }

func TestArenaConfig(t *testing.T) {
	for _, c := range []memory.ArenaConfig{{}, {Capacity: 1}, {Align: 1}, {Capacity: 1 << 20, Align: 4096, RedZone: 4096}} {
		require.NoError(t, c.Validate())
	}
	for _, test := range []struct {
		config memory.ArenaConfig
		want   []string
	}{
		{memory.ArenaConfig{Capacity: -1}, []string{"Capacity is -1"}},
		{memory.ArenaConfig{Capacity: math.MaxInt64}, []string{"Capacity is 9223372036854775807"}},
		{memory.ArenaConfig{Align: -64}, []string{"Align is -64"}},
		{memory.ArenaConfig{Align: 48}, []string{"Align is 48"}},
		{memory.ArenaConfig{Align: 8192}, []string{"Align is 8192"}},
		{memory.ArenaConfig{Align: math.MinInt64}, []string{"Align is"}},
		{memory.ArenaConfig{RedZone: 4097}, []string{"RedZone is 4097"}},
		{memory.ArenaConfig{Capacity: -2, Align: 3}, []string{"Capacity is -2", "Align is 3"}},
	} {
		err := test.config.Validate()
		for _, want := range test.want {
			require.ErrorContains(t, err, want)
		}
		_, refused := memory.NewArena(test.config)
		require.Equal(t, err, refused)
	}
}

// Red zones exist under -tags invariants, in an arena that is large enough for them.
func TestRedZones(t *testing.T) {
	for capacity, zones := range map[int64]bool{1 << 19: false, 1 << 20: invariants.Enabled} {
		a := newArena(t, memory.ArenaConfig{Capacity: capacity, RedZone: 4096})
		first, second := alloc(t, a, memory.Saved, 64), alloc(t, a, memory.Saved, 64)
		require.Equal(t, zones, address(t, a, second)-address(t, a, first) > 4096, capacity)
		require.NoError(t, a.Close())
	}
}

// Check reports the fault of an arena that is broken in one place.
func TestArenaCheck(t *testing.T) {
	a := open(t, 1<<20, 1)
	require.NoError(t, a.SetLayout(&memory.Layout{
		Height: 600, Places: []int32{0, 2}, Levels: []memory.Level{{}},
		Allocations: []memory.Allocation{{Bytes: 257, Class: memory.Saved}, {Bytes: 10, Offset: 512, Class: memory.Saved}},
	}))
	a.SetPlace(0)
	alloc(t, a, memory.Saved, 257)
	second := alloc(t, a, memory.Saved, 10)
	require.NoError(t, a.Check())
	a.Move(second, 256)
	require.ErrorContains(t, a.Check(), "covers bytes 256 to 266, over the end of the step's part")
	a.Move(second, 512)
	require.NoError(t, a.Check())
	alloc(t, a, memory.Resident, 10) // at the end of the range
	a.GiveNothing()
	require.ErrorContains(t, a.Check(), "a gap covers bytes 1048576 to 1048576")
}

func TestNewArenaBeyondTheAddressSpace(t *testing.T) {
	if bits.UintSize == 32 {
		t.Skip("2 GiB can be had")
	}
	_, err := memory.NewArena(memory.ArenaConfig{Capacity: math.MaxInt - 1<<20})
	require.ErrorIs(t, err, memory.ErrOutOfMemory)
}

func TestArenaDefault(t *testing.T) {
	a := open(t, 0, 0)
	h := alloc(t, a, memory.Saved, 1)
	require.Zero(t, address(t, a, h)%64)
	var s memory.Stats
	a.Stats(&s)
	require.EqualValues(t, 64, s.Reserved)
}

func TestArenaData(t *testing.T) {
	for _, align := range []int64{1, 16, 64, 4096} {
		a := open(t, 1<<20, align)
		for _, bytes := range []int64{1, 63, 64, 65, 5000} {
			for _, class := range []memory.Class{memory.Saved, memory.Resident} {
				h := alloc(t, a, class, bytes)
				data := bytesOf(t, a, h)
				require.Len(t, data, int(bytes))
				require.Equal(t, int(bytes), cap(data))
				require.Zero(t, address(t, a, h)%align)
				data[0], data[bytes-1] = 1, 2
			}
		}
		require.NoError(t, a.Check())
	}
}

func TestArenaRefusesSizesAndClasses(t *testing.T) {
	a := open(t, 4096, 0)
	for _, test := range []struct {
		class memory.Class
		bytes int64
		want  string
	}{
		{memory.Saved, 0, "memory: alloc of 0 bytes (saved): the size must be positive"},
		{memory.Saved, -1, "memory: alloc of -1 bytes (saved): the size must be positive"},
		{memory.Class(memory.NumClasses), 64, "memory: alloc of 64 bytes of unknown class 11"},
	} {
		_, err := a.Alloc(test.class, test.bytes)
		require.EqualError(t, err, test.want)
	}
	require.Zero(t, a.Live())
}

func TestArenaOutOfMemory(t *testing.T) {
	a := open(t, 4096, 0)
	x := alloc(t, a, memory.Saved, 1000)
	alloc(t, a, memory.Entry, 1024)
	release(t, a, x)
	_, err := a.Alloc(memory.Carry, 3000)
	require.ErrorIs(t, err, memory.ErrOutOfMemory)
	require.EqualError(t, err, "memory: out of memory: 3000 bytes (carry) requested; live 1024, capacity 4096, largest gap 2048 bytes")
	for _, bytes := range []int64{4097, math.MaxInt64} {
		for _, class := range []memory.Class{memory.Carry, memory.Resident} {
			_, err = a.Alloc(class, bytes)
			require.ErrorIs(t, err, memory.ErrOutOfMemory)
		}
	}
	alloc(t, a, memory.Carry, 2048)
	alloc(t, a, memory.Carry, 1024)
	_, err = a.Alloc(memory.Carry, 1)
	require.ErrorIs(t, err, memory.ErrOutOfMemory)
	require.NoError(t, a.Check())
}

// A buffer goes to the lowest gap that fits, a Resident one to the highest.
func TestArenaPlacement(t *testing.T) {
	a := open(t, 64*100, 64)
	base := int64(0)
	at := func(h memory.Handle) int64 { return (address(t, a, h) - base) / 64 }
	x := alloc(t, a, memory.Saved, 64*10)
	base = address(t, a, x)
	y := alloc(t, a, memory.Activation, 64*20-1)
	z := alloc(t, a, memory.Workspace, 64*5)
	require.Equal(t, []int64{0, 10, 30}, []int64{at(x), at(y), at(z)})

	weights := alloc(t, a, memory.Resident, 64*3)
	grads := alloc(t, a, memory.Resident, 64*4)
	require.Equal(t, []int64{97, 93}, []int64{at(weights), at(grads)})

	release(t, a, x)
	require.EqualValues(t, 35, at(alloc(t, a, memory.Saved, 64*11)), "the lowest gap is too small")
	w := alloc(t, a, memory.Saved, 64*4)
	require.EqualValues(t, 0, at(w), "the lowest gap fits")
	release(t, a, y)
	require.EqualValues(t, 4, at(alloc(t, a, memory.Saved, 64*26)), "gaps merge")

	release(t, a, weights)
	require.EqualValues(t, 97, at(alloc(t, a, memory.Resident, 64*3)), "the highest gap fits")
	require.NoError(t, a.Check())
}

// Resident buffers that are allocated while a step runs leave no hole in its range.
func TestArenaResidentDoesNotFragment(t *testing.T) {
	a := open(t, 64*1000, 64)
	step := alloc(t, a, memory.Saved, 64*100)
	base := address(t, a, step)
	alloc(t, a, memory.Resident, 64*10)
	release(t, a, step)
	require.Equal(t, base, address(t, a, alloc(t, a, memory.Saved, 64*990)))
}

func TestArenaReserved(t *testing.T) {
	a := open(t, 64*100, 64)
	reserved := func() int64 {
		var s memory.Stats
		a.Stats(&s)
		require.NoError(t, a.Check())
		return s.Reserved / 64
	}
	require.Zero(t, reserved())
	x := alloc(t, a, memory.Saved, 64*10)
	y := alloc(t, a, memory.Saved, 64*20)
	weights := alloc(t, a, memory.Resident, 64*5)
	require.EqualValues(t, 35, reserved())
	release(t, a, x, y, weights)
	require.EqualValues(t, 35, reserved(), "high-water")
	x, y = alloc(t, a, memory.Saved, 64*12), alloc(t, a, memory.Saved, 64*17)
	weights = alloc(t, a, memory.Resident, 64*4)
	require.EqualValues(t, 35, reserved(), "nothing new")
	alloc(t, a, memory.Saved, 64*2)
	require.EqualValues(t, 36, reserved())
	release(t, a, x, y)
	// From both ends into the middle, and beyond the bytes that the other end touched.
	low := alloc(t, a, memory.Resident, 64*65)
	require.EqualValues(t, 31+4+65, reserved())
	release(t, a, weights, low)
	alloc(t, a, memory.Saved, 64*69)
	require.EqualValues(t, 100, reserved())
}

// Resident and other buffers share one range: either may use all of it.
func TestArenaReservedFromEitherEnd(t *testing.T) {
	for _, class := range []memory.Class{memory.Resident, memory.Saved} {
		a := open(t, 6400, 64)
		release(t, a, alloc(t, a, memory.Resident, 640), alloc(t, a, memory.Saved, 640))
		h := alloc(t, a, class, 6400)
		var s memory.Stats
		a.Stats(&s)
		require.EqualValues(t, 6400, s.Reserved)
		release(t, a, h)
		require.NoError(t, a.Check())
	}
}

func TestArenaClose(t *testing.T) {
	a := newArena(t, memory.ArenaConfig{Capacity: 1 << 20})
	weights, saved := alloc(t, a, memory.Resident, 100), alloc(t, a, memory.Saved, 200)
	_, err := a.Hold(saved)
	require.NoError(t, err)
	require.NoError(t, a.Close())
	require.NoError(t, a.Close())

	_, err = a.Alloc(memory.Saved, 100)
	require.ErrorIs(t, err, memory.ErrClosed)
	for _, h := range []memory.Handle{weights, saved} {
		_, err = a.Data(h)
		require.ErrorIs(t, err, memory.ErrStale)
		_, err = a.Unhold(h)
		require.ErrorIs(t, err, memory.ErrStale)
		require.ErrorIs(t, a.Retain(h), memory.ErrStale)
		require.Zero(t, a.Bytes(h))
	}
	_, err = a.Data(memory.Handle{})
	require.ErrorIs(t, err, memory.ErrNone)
	require.Zero(t, a.Reclaim(0))
	require.NoError(t, a.Check())
	var s memory.Stats
	a.Stats(&s)
	require.Equal(t, memory.Stats{Peak: 300, Allocs: 2, Frees: 2, PeakClasses: memory.ByClass{memory.Resident: 100, memory.Saved: 200}}, s)
	for range a.All() {
		t.Fatal("a live buffer after Close")
	}
}

func TestArenaErrorsNameHandleAndCall(t *testing.T) {
	a := open(t, 1<<20, 0)
	h := alloc(t, a, memory.Saved, 300)
	require.Equal(t, "1.1", h.String())
	require.Equal(t, "none", memory.Handle{}.String())
	_, err := a.Unhold(h)
	require.EqualError(t, err, "memory: the buffer is not held: unhold of handle 1.1 (saved, 300 bytes; 1 plain, 0 held)")
	_, err = a.Hold(h)
	require.NoError(t, err)
	_, err = a.Release(h)
	require.EqualError(t, err, "memory: no plain reference to the buffer is left: release of handle 1.1 (saved, 300 bytes; 0 plain, 1 held)")
	_, err = a.Unhold(h)
	require.NoError(t, err)
	release(t, a, h)
	_, err = a.Data(h)
	require.EqualError(t, err, "memory: the buffer behind this handle was released: data of handle 1.1")
	require.EqualError(t, a.Retain(memory.Handle{}), "memory: no buffer behind this handle: retain of handle none")
	require.Equal(t, "1.2", alloc(t, a, memory.Saved, 1).String())
}

// A handle of another arena is rejected, even if its slot and generation are those of a live
// buffer, and also after the other arena was closed.
func TestArenaRefusesHandlesOfOthers(t *testing.T) {
	a, b := open(t, 1<<20, 0), open(t, 1<<20, 0)
	own := alloc(t, a, memory.Saved, 100)
	same, beyond := alloc(t, b, memory.Carry, 100), alloc(t, b, memory.Saved, 1)
	require.Equal(t, own.String(), same.String())
	for range 2 {
		for _, h := range []memory.Handle{same, beyond} {
			_, released := a.Release(h)
			_, held := a.Hold(h)
			_, unheld := a.Unhold(h)
			data, read := a.Data(h)
			for _, err := range []error{a.Retain(h), released, held, unheld, read} {
				require.ErrorIs(t, err, memory.ErrOtherArena)
			}
			require.Zero(t, a.Bytes(h))
			require.Zero(t, a.Class(h))
			require.Nil(t, data)
		}
		require.EqualValues(t, 100, a.Live())
		require.EqualValues(t, 100, a.Bytes(own))
		require.NoError(t, b.Close())
	}
	_, err := a.Release(same)
	require.EqualError(t, err, "memory: the handle belongs to another arena: release of handle 1.1")
	release(t, a, own)
}

func TestArenaAll(t *testing.T) {
	a := open(t, 1<<20, 0)
	x := alloc(t, a, memory.Saved, 100)
	y := alloc(t, a, memory.Resident, 200)
	release(t, a, x)
	z := alloc(t, a, memory.Loss, 8) // reuses the slot of x, and is allocated after y
	require.NoError(t, a.Retain(z))
	_, err := a.Hold(z)
	require.NoError(t, err)
	var all []memory.Info
	for info := range a.All() {
		all = append(all, info)
		release(t, a, y) // the iteration uses a snapshot
		y = alloc(t, a, memory.Resident, 200)
	}
	require.Len(t, all, 2)
	require.Equal(t, memory.Info{Handle: z, Class: memory.Loss, Bytes: 8, Plain: 1, Held: 1, Serial: 2, Offset: all[1].Offset}, all[1])
	require.Equal(t, memory.Resident, all[0].Class)
	for range a.All() {
		break
	}
}

// A slot is retired after its last generation, and no old handle becomes valid (L7).
func TestArenaRetiresSlots(t *testing.T) {
	a := open(t, 1<<20, 0)
	first := alloc(t, a, memory.Saved, 100)
	last := a.LastGeneration(first)
	require.ErrorIs(t, a.Retain(first), memory.ErrStale)
	release(t, a, last)
	require.ErrorIs(t, a.Retain(last), memory.ErrStale)
	require.ErrorIs(t, a.Retain(memory.Handle{}), memory.ErrNone)
	require.Zero(t, a.Reclaim(0))

	next := alloc(t, a, memory.Saved, 100)
	require.Equal(t, "2.1", next.String(), "another slot")
	require.ErrorIs(t, a.Retain(first), memory.ErrStale)
	require.ErrorIs(t, a.Retain(last), memory.ErrStale)
	release(t, a, next)
	release(t, a, alloc(t, a, memory.Saved, 100))
	require.Equal(t, 2, a.Slots())
	require.NoError(t, a.Check())
}

// Check detects a buffer that overlaps another one.
func TestArenaCheckFindsOverlap(t *testing.T) {
	a := open(t, 1<<20, 0)
	alloc(t, a, memory.Saved, 100)
	h := alloc(t, a, memory.Saved, 100)
	require.NoError(t, a.Check())
	a.Forget(h)
	require.ErrorContains(t, a.Check(), "memory: ")
	if !invariants.Enabled { // with invariants Alloc panics, see TestInvariantsOverlap
		alloc(t, a, memory.Entry, 100)
		err := a.Check()
		require.ErrorContains(t, err, "memory: handle ")
		require.True(t, strings.Contains(err.Error(), "2.1") || strings.Contains(err.Error(), "3.1"), err)
	}
}

// The pages are outside the Go heap, and the collector does not count them.
func TestArenaIsOutsideTheGoHeap(t *testing.T) {
	switch runtime.GOOS {
	case "linux", "darwin", "windows", "freebsd", "netbsd", "openbsd", "dragonfly":
	default:
		t.Skip("the range is on the Go heap here")
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	a := open(t, 256<<20, 0)
	data := bytesOf(t, a, alloc(t, a, memory.Saved, 64<<20))
	for i := 0; i < len(data); i += 4096 {
		data[i] = 1
	}
	runtime.ReadMemStats(&after)
	require.Less(t, int64(after.HeapAlloc)-int64(before.HeapAlloc), int64(1<<20))
	require.Less(t, int64(after.HeapSys)-int64(before.HeapSys), int64(8<<20))
}

// A step that repeats allocates nothing on the Go heap (L7, L11).
func TestArenaAllocatesNothing(t *testing.T) {
	a := open(t, 1<<20, 0)
	var live [100]memory.Handle
	step := func() {
		for round := range 3 {
			for i := range live {
				h, err := a.Alloc(ofASpan[i%len(ofASpan)], int64(64+i*round))
				_, held := a.Hold(h)
				if err != nil || held != nil {
					panic(errors.Join(err, held))
				}
				live[i] = h
			}
			for i := range live { // gaps are created in irregular order
				h := live[(i*37)%len(live)]
				_, unheld := a.Unhold(h)
				_, err := a.Release(h)
				if err != nil || unheld != nil {
					panic(errors.Join(err, unheld))
				}
			}
		}
	}
	step()
	require.Zero(t, testing.AllocsPerRun(50, step))
	require.Zero(t, a.Live())
	require.NoError(t, a.Check())
}

// newArena returns an arena with a configuration that must be correct.
func newArena(t require.TestingT, cfg memory.ArenaConfig) *memory.Arena {
	a, err := memory.NewArena(cfg)
	require.NoError(t, err)
	return a
}

// bytesOf returns the bytes of a buffer that is live.
func bytesOf(t require.TestingT, a *memory.Arena, h memory.Handle) []byte {
	data, err := a.Data(h)
	require.NoError(t, err)
	return data
}
