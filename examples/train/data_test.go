package main

import (
	"math"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/trainer/corpus"
)

func TestDefaultText(t *testing.T) {
	text, err := readText(t.Context(), "")
	require.NoError(t, err)
	require.NotEmpty(t, text.Bytes)
}

// Where there is no Opticks the standard library's source stands in.
func TestSourceText(t *testing.T) {
	const most = 1 << 20
	read, err := corpus.Read(t.Context(), filepath.Join(goroot(t.Context()), "src"), most, isGo)
	require.NoError(t, err)
	require.Len(t, read.Bytes, most)
	require.True(t, read.Cut)
	require.Contains(t, string(read.Bytes), "package ")
}

func TestSplit(t *testing.T) {
	training, heldout, err := split(&corpus.Text{Bytes: []byte("0123456789abcdefghij?")}, 1)
	require.NoError(t, err)
	require.Equal(t, "0123456789abcdefghi", string(training))
	require.Equal(t, "j?", string(heldout))
	_, _, err = split(&corpus.Text{Bytes: []byte("0123456789abcdefghij?")}, 2)
	require.ErrorContains(t, err, "longer than the data")
}

func TestSourceFills(t *testing.T) {
	s := source{text: []byte("abc")}
	s.fill(1, 3)
	require.Equal(t, []int32{'b', 'c'}, s.tokens)
	require.Equal(t, []int32{'c', 0}, s.labels)
	require.Equal(t, []float32{1, 0}, s.weights, "the last byte has no next one")
}

func TestRate(t *testing.T) {
	require.InDelta(t, 0.1, rateAt(1, 0, 10, 100), 1e-6)
	require.InDelta(t, 1, rateAt(1, 9, 10, 100), 1e-6)
	require.InDelta(t, 1, rateAt(1, 10, 10, 100), 1e-6)
	require.InDelta(t, 0.05, rateAt(1, 99, 10, 100), 1e-6)
	require.InDelta(t, 1, rateAt(1, 0, 0, 1), 1e-6)
	for step := 10; step < 99; step++ {
		require.Greater(t, rateAt(1, step, 10, 100), rateAt(1, step+1, 10, 100))
	}
}

func TestRatio(t *testing.T) {
	mean, standard := ratio([]float64{2, 6}, []float64{1, 3})
	require.Equal(t, 2.0, mean)
	require.Zero(t, standard)
	mean, standard = ratio([]float64{1, 3, 2, 2}, []float64{1, 1, 1, 1})
	require.Equal(t, 2.0, mean)
	require.InDelta(t, math.Sqrt(2.0/3)/2, standard, 1e-12) // the sample's deviation over the root of 4
	_, standard = ratio([]float64{1}, []float64{1})
	require.True(t, math.IsNaN(standard))
}
