//go:build invariants

package memory_test

import (
	"bytes"
	"testing"

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

func TestInvariantsPoison(t *testing.T) {
	a := open(t, 1<<20, 0)
	for _, class := range []memory.Class{memory.Saved, memory.Resident} {
		h := alloc(t, a, class, 100)
		data, err := a.Data(h)
		require.NoError(t, err)
		poison := bytes.Repeat([]byte{0xDB}, 100)
		require.Equal(t, poison, data, "a new buffer")
		clear(data)
		release(t, a, h)
		require.Equal(t, poison, data, "a released buffer")

		// Whoever writes through a view after its release is found out once.
		data[99] = 7
		_, err = a.Alloc(class, 128)
		require.ErrorIs(t, err, memory.ErrStale)
		require.ErrorContains(t, err, "a view was written after its release")
		release(t, a, alloc(t, a, class, 128))
		require.NoError(t, a.Check())
	}
}
