package main

import (
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

// If there is no Opticks the standard library's source stands in.
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
