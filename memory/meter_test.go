package memory_test

import (
	"fmt"
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

func microbatches(r *memory.Ring) []int {
	var all []int
	for i := range r.Len() {
		all = append(all, r.At(i).Microbatch)
	}
	return all
}

func TestRingKeepsTheLast(t *testing.T) {
	for _, test := range []struct {
		size, put int
		want      []int
	}{
		{3, 0, nil},
		{3, 2, []int{0, 1}},
		{3, 3, []int{0, 1, 2}},
		{3, 4, []int{1, 2, 3}},
		{3, 9, []int{6, 7, 8}},
		{1, 5, []int{4}},
		{0, 5, nil},
		{-1, 5, nil},
	} {
		r := memory.NewRing(test.size)
		for i := range test.put {
			r.Put(&memory.Sample{Microbatch: i})
		}
		require.Equal(t, test.want, microbatches(r), "%d samples in a ring of %d", test.put, test.size)
	}
	var zero memory.Ring
	zero.Put(&memory.Sample{})
	require.Zero(t, zero.Len())
}

func TestRingCopiesSamples(t *testing.T) {
	r, s := memory.NewRing(2), memory.Sample{Microbatch: 1}
	r.Put(&s)
	s.Microbatch = 2
	require.Equal(t, 1, r.At(0).Microbatch)
}

// The ring never grows (L7).
func TestRingAllocatesNothing(t *testing.T) {
	r, s := memory.NewRing(8), memory.Sample{}
	require.Zero(t, testing.AllocsPerRun(100, func() { r.Put(&s) }))
}

func TestClassNames(t *testing.T) {
	names := []string{
		"resident", "entry", "activation", "actgrad", "saved", "carry",
		"transfer", "workspace", "loss", "fp8", "unsharded",
	}
	require.Len(t, names, memory.NumClasses)
	for i, name := range names {
		require.Equal(t, name, memory.Class(i).String())
		class, ok := memory.ParseClass(name)
		require.True(t, ok)
		require.Equal(t, memory.Class(i), class)
	}
	require.Equal(t, "class(?)", memory.Class(memory.NumClasses).String())
	for _, name := range []string{"", "Resident", "class(?)"} {
		_, ok := memory.ParseClass(name)
		require.False(t, ok, name)
	}
}

func TestByClassTotal(t *testing.T) {
	var b memory.ByClass
	require.Zero(t, b.Total())
	for i := range b {
		b[i] = 1 << i
	}
	require.EqualValues(t, 1<<memory.NumClasses-1, b.Total())
}

func ExampleGrowth() {
	fmt.Println(memory.Growth{Audited: true}, memory.Growth{Bytes: 64, Audited: true}, memory.Growth{Bytes: 64}, memory.Growth{})
	// Output: 0 bytes 64 bytes 64 bytes not audited
}
