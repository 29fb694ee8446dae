package memory_test

import (
	"math/rand/v2"
	"slices"
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
	want.PeakClasses[memory.Saved], want.PeakClasses[memory.Loss] = 100, 20
	s.Reserved = 999 // the previous value must be overwritten
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

// The classes at the peak are those of the first moment at that level, and sum to it: while the
// level still rises, after the maximum, and after every reset.
func TestMeterPeakClasses(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	type buffer struct {
		class memory.Class
		bytes int64
	}
	var m memory.Meter
	var live []buffer
	var now, top memory.ByClass
	var s memory.Stats
	for i := range 20_000 {
		switch n := len(live); {
		case i%97 == 96:
			m.ResetPeak()
			top = now
		case n == 0 || random.IntN(40) > n:
			b := buffer{memory.Class(random.IntN(memory.NumClasses)), 1 + random.Int64N(9)}
			m.Alloc(b.class, b.bytes)
			live = append(live, b)
			now[b.class] += b.bytes
			if now.Total() > top.Total() {
				top = now
			}
		default:
			b := live[random.IntN(n)]
			live = slices.Delete(live, slices.Index(live, b), slices.Index(live, b)+1)
			m.Free(b.class, b.bytes)
			now[b.class] -= b.bytes
		}
		m.Stats(&s)
		require.Equal(t, top, s.PeakClasses, "call %d", i)
		require.Equal(t, top.Total(), s.Peak, "call %d", i)
	}
}
