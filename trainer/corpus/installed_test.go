package corpus

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestInstalled(t *testing.T) {
	text, err := Installed(t.Context(), 64<<20)
	require.NoError(t, err)
	require.NotEmpty(t, text.Bytes)
}

// If there is no Opticks, the source of the standard library replaces it.
func TestSourceText(t *testing.T) {
	const most = 1 << 20
	read, err := Read(t.Context(), filepath.Join(goroot(t.Context()), "src"), most, isGo)
	require.NoError(t, err)
	require.Len(t, read.Bytes, most)
	require.True(t, read.Cut)
	require.Contains(t, string(read.Bytes), "package ")
}

func TestReader(t *testing.T) {
	r := Reader{Sequence: Bytes("abc"), Windows: &Tiled{Size: 3, Length: 2, Most: 2}}
	tokens, labels, weights, err := r.Read(0)
	require.NoError(t, err)
	require.Equal(t, []int32{'a', 'b'}, tokens)
	require.Equal(t, []int32{'b', 'c'}, labels)
	require.Equal(t, []float32{1, 1}, weights)
	tokens, labels, weights, err = r.Read(1)
	require.NoError(t, err)
	require.Equal(t, []int32{'c'}, tokens)
	require.Equal(t, []int32{0}, labels)
	require.Equal(t, []float32{0}, weights, "the last token has no next one")
	r.Vocabulary = 'b'
	_, _, _, err = r.Read(0)
	require.ErrorContains(t, err, "token 2 is 99, expected less than 98")
}
