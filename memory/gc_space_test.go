package memory_test

import (
	"runtime"
	"slices"
	"testing"
	"weak"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-ml/weir/memory"
)

// tensor is a handle whose memory belongs to the collector.
type tensor struct {
	class memory.Class
	data  []byte
}

func newTensors() *memory.GCSpace[*tensor] {
	return memory.NewGCSpace(
		func(t *tensor) memory.Class { return t.class },
		func(t *tensor) int64 { return int64(len(t.data)) },
	)
}

// An unknown handle has one plain reference, owned by its creator.
func TestGCSpaceAdopts(t *testing.T) {
	c := newTensors()
	fresh := func() *tensor { return &tensor{memory.Saved, make([]byte, 300)} }

	h := fresh()
	require.EqualValues(t, 300, c.Bytes(h))
	require.Equal(t, memory.Saved, c.Class(h))
	require.Zero(t, c.Len(), "a look does not make it known")

	held, err := c.Hold(h)
	require.NoError(t, err)
	require.EqualValues(t, 300, held)
	_, err = c.Hold(h)
	require.ErrorIs(t, err, memory.ErrNoPlain)
	require.EqualError(t, err, "memory: no plain reference to the buffer is left: hold (saved, 300 bytes; 0 plain, 1 held)")

	// A stage that saves a tensor and returns it retains it once, as with an arena.
	h = fresh()
	require.NoError(t, c.Retain(h))
	for _, want := range []int64{300, 0} {
		held, err = c.Hold(h)
		require.NoError(t, err)
		require.Equal(t, want, held)
	}
	_, err = c.Hold(h)
	require.ErrorIs(t, err, memory.ErrNoPlain)

	h = fresh()
	_, err = c.Unhold(h)
	require.ErrorIs(t, err, memory.ErrNotHeld)
	freed, err := c.Release(h)
	require.NoError(t, err)
	require.EqualValues(t, 300, freed)
	require.Equal(t, 2, c.Len())
}

func TestGCSpaceForgets(t *testing.T) {
	c := newTensors()
	h := &tensor{memory.Saved, make([]byte, 300)}
	_, err := c.Hold(h)
	require.NoError(t, err)
	require.Equal(t, 1, c.Len())
	_, err = c.Unhold(h)
	require.NoError(t, err)
	require.Zero(t, c.Len(), "a unheld tensor may be dropped without a call")
	_, err = c.Release(h)
	require.NoError(t, err)
	require.Zero(t, c.Len())

	require.NoError(t, c.Retain(h))
	require.Equal(t, 1, c.Len())
	_, err = c.Release(h)
	require.NoError(t, err)
	require.Zero(t, c.Len())
}

// Class and size are those at the time when the handle became known.
func TestGCSpaceRemembersClassAndBytes(t *testing.T) {
	c := newTensors()
	h := &tensor{memory.Saved, make([]byte, 300)}
	_, err := c.Hold(h)
	require.NoError(t, err)
	h.class, h.data = memory.Loss, nil
	require.Equal(t, memory.Saved, c.Class(h))
	unheld, err := c.Unhold(h)
	require.NoError(t, err)
	require.EqualValues(t, 300, unheld)
	require.Zero(t, c.Bytes(h))
}

func TestGCSpaceDefaults(t *testing.T) {
	c := memory.NewGCSpace[string](nil, nil)
	require.Equal(t, memory.Activation, c.Class("x"))
	require.Zero(t, c.Bytes("x"))
	require.Zero(t, c.Class(""))
	_, err := c.Hold("")
	require.ErrorIs(t, err, memory.ErrNone)
	require.EqualError(t, err, "memory: no buffer behind this handle: hold")
}

// After the last reference the space does not refer to the tensor.
func TestGCSpaceHoldsNothingAfterTheEnd(t *testing.T) {
	c := newTensors()
	var gone []weak.Pointer[tensor]
	step := func(end func(h *tensor)) {
		for range 100 { // more than the initial size of the table
			h := &tensor{memory.Saved, make([]byte, 300)}
			gone = append(gone, weak.Make(h))
			require.NoError(t, c.Retain(h))
			end(h)
		}
	}
	ok := func(_ int64, err error) { require.NoError(t, err) }
	step(func(h *tensor) { ok(c.Release(h)); ok(c.Release(h)) })
	step(func(h *tensor) { ok(c.Release(h)) })
	step(func(h *tensor) { ok(c.Hold(h)); ok(c.Hold(h)); ok(c.Unhold(h)); ok(c.Release(h)); ok(c.Unhold(h)) })
	mark := c.Mark()
	step(func(h *tensor) { ok(c.Hold(h)) })
	require.Equal(t, 100, c.Len())
	require.EqualValues(t, 100*300, c.Reclaim(mark))
	require.Zero(t, c.Len())

	// And a held tensor stays, whatever the collector does.
	kept := weak.Make(func() *tensor {
		h := &tensor{memory.Saved, make([]byte, 300)}
		ok(c.Hold(h))
		return h
	}())
	runtime.GC()
	for i, w := range gone {
		require.Nil(t, w.Value(), "tensor %d is reachable", i)
	}
	require.NotNil(t, kept.Value())
	runtime.KeepAlive(c)
}

func TestGCSpaceAll(t *testing.T) {
	c := newTensors()
	x, y, z := &tensor{memory.Saved, make([]byte, 1)}, &tensor{memory.Entry, make([]byte, 2)}, &tensor{memory.Loss, make([]byte, 3)}
	for _, h := range []*tensor{x, y, z, x} {
		require.NoError(t, c.Retain(h))
	}
	_, err := c.Hold(z)
	require.NoError(t, err)
	_, err = c.Release(y)
	require.NoError(t, err)
	require.Equal(t, []memory.Info{
		{Class: memory.Saved, Bytes: 1, Plain: 3, Serial: 0},
		{Class: memory.Loss, Bytes: 3, Plain: 1, Held: 1, Serial: 2},
	}, slices.Collect(c.All()))
}

// Handles that become known and are forgotten allocate nothing, however many there are (L7, L11).
func TestGCSpaceAllocatesNothing(t *testing.T) {
	c := newTensors()
	pool := make([]*tensor, 1000)
	for i := range pool {
		pool[i] = &tensor{memory.Saved, make([]byte, i)}
	}
	const live = 30
	n := 0
	step := func() {
		_, errHold := c.Hold(pool[n%len(pool)])
		if n >= live {
			h := pool[(n-live)%len(pool)]
			_, errYield := c.Unhold(h)
			_, errRelease := c.Release(h)
			if errYield != nil || errRelease != nil {
				panic(errRelease)
			}
		}
		if errHold != nil {
			panic(errHold)
		}
		n++
	}
	require.Zero(t, testing.AllocsPerRun(300_000, step))
	require.Equal(t, live, c.Len())
}

// Random calls have the same effect on a GCSpace as on a map.
func TestGCSpaceAgainstModel(t *testing.T) {
	type refs struct{ plain, held int64 }
	rapid.Check(t, func(t *rapid.T) {
		c := memory.NewGCSpace(nil, func(h int) int64 { return int64(h) })
		model := map[int]refs{}
		ops := rapid.SliceOfN(rapid.IntRange(0, 400*4-1), 0, 2000).Draw(t, "ops")
		for _, op := range ops {
			h := op/4 + 1
			n, known := model[h]
			if !known {
				n.plain = 1
			}
			var got, want int64
			var err, wantErr error
			switch op % 4 {
			case 0:
				n.plain++
				err = c.Retain(h)
			case 1:
				if n.plain == 0 {
					wantErr = memory.ErrNoPlain
				} else if n.plain--; n == (refs{}) {
					want = int64(h)
				}
				got, err = c.Release(h)
			case 2:
				if n.plain == 0 {
					wantErr = memory.ErrNoPlain
				} else if n.plain, n.held = n.plain-1, n.held+1; n.held == 1 {
					want = int64(h)
				}
				got, err = c.Hold(h)
			case 3:
				if n.held == 0 {
					wantErr = memory.ErrNotHeld
				} else if n.plain, n.held = n.plain+1, n.held-1; n.held == 0 {
					want = int64(h)
				}
				got, err = c.Unhold(h)
			}
			require.ErrorIs(t, err, wantErr)
			require.Equal(t, want, got)
			if n == (refs{}) || n == (refs{plain: 1}) {
				delete(model, h)
			} else {
				model[h] = n
			}
			require.Equal(t, len(model), c.Len())
		}
	})
}

// StillReachable counts the tensors of a recorded step that are still reachable, each once, and
// their bytes.
func TestSurvivors(t *testing.T) {
	s := memory.NewLeakTrackingSpace(func(*tensor) memory.Class { return memory.Saved }, func(t *tensor) int64 { return int64(len(t.data)) })
	var kept []*tensor
	step := func(handed int) {
		kept = nil
		mark := s.Mark()
		for i := range handed {
			h := &tensor{data: make([]byte, 100+i)}
			for range 2 { // it is held, unheld, and held again
				_, err := s.Hold(h)
				require.NoError(t, err)
				_, err = s.Unhold(h)
				require.NoError(t, err)
			}
			if _, err := s.Release(h); i%2 == 1 {
				require.NoError(t, err)
				kept = append(kept, h)
			}
		}
		s.Reclaim(mark)
	}
	for i, watched := range []bool{true, true, true, false, true} { // steps 0, 1, 2, 4, 8, ...
		step(4)
		if watched {
			handles, bytes := s.StillReachable()
			require.Equal(t, []int64{2, 101 + 103}, []int64{int64(handles), bytes}, "step %d", i)
		}
	}
	step(2) // is not recorded
	handles, _ := s.StillReachable()
	require.Zero(t, handles, "the tensors of the last recorded step are gone")
	runtime.KeepAlive(kept)
}
