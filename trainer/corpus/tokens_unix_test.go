//go:build unix

package corpus_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/trainer/corpus"
)

// TestTokensCut reads a file that was truncated after it was mapped. Beyond the last page the system raises a
// signal. On the last page it returns zeros.
func TestTokensCut(t *testing.T) {
	ids, want := counted(0, 200_000)
	path := tokenFile(t, 4, nil, ids)
	tokens, err := corpus.OpenTokens(path, 4)
	require.NoError(t, err)
	require.NoError(t, os.Truncate(path, 4*70_001))
	got := make([]int32, 1000)
	for _, first := range []int{199_000, 69_500, 70_001} {
		require.ErrorIs(t, tokens.ReadTokens(got, first), corpus.ErrTokens)
	}
	_, err = tokens.SHA256()
	require.ErrorIs(t, err, corpus.ErrTokens)
	require.NoError(t, tokens.ReadTokens(got, 69_001), "the remaining tokens")
	require.Equal(t, want[69_001:70_001], got)
	require.NoError(t, tokens.Close())
}
