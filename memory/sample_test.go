package memory_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/memory"
)

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
