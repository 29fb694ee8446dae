package memory_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/memory"
)

func TestMeter(t *testing.T) {
	var m memory.Meter
	var s memory.Stats
	m.Stats(&s)
	require.Equal(t, memory.Stats{}, s)

	m.Alloc(memory.Saved, 100)
	m.Alloc(memory.Loss, 20)
	m.Free(memory.Saved, 100)
	m.Alloc(memory.Saved, 3)
	require.EqualValues(t, 23, m.Live())
	want := memory.Stats{Live: 23, Peak: 120, Allocs: 3, Frees: 1}
	want.Classes[memory.Saved], want.Classes[memory.Loss] = 3, 20
	s.Reserved = 999 // what was there before does not shine through
	m.Stats(&s)
	require.Equal(t, want, s)

	m.ResetPeak()
	m.Stats(&s)
	require.EqualValues(t, 23, s.Peak)
	m.Alloc(memory.Saved, 1)
	m.Free(memory.Saved, 1)
	m.Stats(&s)
	require.EqualValues(t, 24, s.Peak)
}
