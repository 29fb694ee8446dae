package corpus_test

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/trainer/corpus"
)

// tokenFile writes a file with a header and tokens of a given width.
func tokenFile(t testing.TB, width int, header, ids []uint32) string {
	t.Helper()
	var content []byte
	for _, v := range header {
		content = binary.LittleEndian.AppendUint32(content, v)
	}
	if header != nil {
		content = append(content, make([]byte, 1024-len(content))...)
	}
	for _, id := range ids {
		content = append(content, binary.LittleEndian.AppendUint32(nil, id)[:width]...)
	}
	path := filepath.Join(t.TempDir(), "tokens.bin")
	require.NoError(t, os.WriteFile(path, content, 0o666))
	return path
}

// counted returns the tokens from one number to another; each token is its own number.
func counted(from, to int) (ids []uint32, want []int32) {
	for i := from; i < to; i++ {
		ids, want = append(ids, uint32(i)), append(want, int32(i))
	}
	return ids, want
}

func TestTokens(t *testing.T) {
	ids, want := counted(0, 5000)
	for _, c := range []struct {
		width  int
		header []uint32
	}{{2, nil}, {4, nil}, {2, []uint32{20240520, 1, 5000}}, {4, []uint32{20240801, 7, 5000}}} {
		tokens, err := corpus.OpenTokens(tokenFile(t, c.width, c.header, ids), c.width)
		require.NoError(t, err)
		require.Equal(t, 5000, tokens.Len())
		got := make([]int32, 5000)
		require.NoError(t, tokens.ReadTokens(got, 0))
		require.Equal(t, want, got)
		part := tokens.Slice(100, 4900).Slice(10, 4000)
		require.Equal(t, 3990, part.Len())
		require.NoError(t, part.ReadTokens(got[:3990], 0))
		require.Equal(t, want[110:4100], got[:3990])
		require.ErrorContains(t, part.ReadTokens(got[:2], 3989), "tokens 3989 to 3991 of 3990")
		require.Error(t, part.ReadTokens(got[:2], -1))
		require.Zero(t, testing.AllocsPerRun(10, func() { require.NoError(t, tokens.ReadTokens(got[:100], 3000)) }))
		require.NoError(t, tokens.Close())
	}
}

// TestTokensSHA256 distinguishes files by their tokens, at both ends and in the middle.
func TestTokensSHA256(t *testing.T) {
	sum := func(header, ids []uint32) string {
		tokens, err := corpus.OpenTokens(tokenFile(t, 4, header, ids), 4)
		require.NoError(t, err)
		sum, err := tokens.SHA256()
		require.NoError(t, err)
		require.NoError(t, tokens.Close())
		return sum
	}
	ids, _ := counted(0, 50_000)
	seen := []string{sum(nil, ids), sum(nil, ids[1:]), sum(nil, ids[:49_999])}
	require.Equal(t, seen[0], sum([]uint32{20240801, 7, 50_000}, ids))
	for _, i := range []int{0, 25_000, 49_999} {
		changed := slices.Clone(ids)
		changed[i]++
		seen = append(seen, sum(nil, changed))
	}
	slices.Sort(seen)
	require.Len(t, slices.Compact(seen), 6)
}

func TestTokensRefused(t *testing.T) {
	ids, _ := counted(0, 3)
	for want, c := range map[string]struct {
		width, open int
		header, ids []uint32
	}{
		"a token has 4 bytes, not 2":                    {4, 2, []uint32{20240801, 7, 3}, ids},
		"a token has 2 bytes, not 4":                    {2, 4, []uint32{20240520, 1, 3}, ids},
		"version 2 in the header, expected 1":           {2, 2, []uint32{20240520, 2, 3}, ids},
		"its header says 4 tokens and 3 follow":         {2, 2, []uint32{20240520, 1, 4}, ids},
		"it has 6 bytes, expected tokens of 4 bytes":    {2, 4, nil, ids},
		"it has 0 bytes, expected tokens of 2 bytes":    {2, 2, nil, nil},
		"it has 1024 bytes, expected tokens of 2 bytes": {2, 2, []uint32{20240520, 1, 0}, nil},
	} {
		_, err := corpus.OpenTokens(tokenFile(t, c.width, c.header, c.ids), c.open)
		require.ErrorIs(t, err, corpus.ErrTokens)
		require.ErrorContains(t, err, want)
	}
	_, err := corpus.OpenTokens(tokenFile(t, 2, nil, ids), 3)
	require.ErrorContains(t, err, "give 2 (uint16) or 4 (uint32)")
	_, err = corpus.OpenTokens(filepath.Join(t.TempDir(), "none"), 2)
	require.ErrorIs(t, err, os.ErrNotExist)

	tokens, err := corpus.OpenTokens(tokenFile(t, 4, nil, []uint32{1, math.MaxUint32}), 4)
	require.NoError(t, err)
	require.ErrorContains(t, tokens.ReadTokens(make([]int32, 2), 0), "token 1 is 4294967295")
	require.NoError(t, tokens.Close())
}

// FuzzTokens opens any file with both widths. Tokens that are read are those of the file.
func FuzzTokens(f *testing.F) {
	ids, _ := counted(0, 5)
	for _, c := range []struct {
		width  int
		header []uint32
	}{{2, nil}, {4, nil}, {2, []uint32{20240520, 1, 5}}, {4, []uint32{20240801, 7, 5}}, {4, []uint32{20240801, 7, math.MaxUint32}}, {2, []uint32{20240520, 2, 5}}} {
		content, err := os.ReadFile(tokenFile(f, c.width, c.header, ids))
		require.NoError(f, err)
		f.Add(content)
	}
	path := filepath.Join(f.TempDir(), "tokens.bin")
	f.Fuzz(func(t *testing.T, content []byte) {
		require.NoError(t, os.WriteFile(path, content, 0o666))
		for _, width := range []int{2, 4} {
			tokens, err := corpus.OpenTokens(path, width)
			if err != nil {
				require.ErrorIs(t, err, corpus.ErrTokens)
				continue
			}
			got, data := make([]int32, tokens.Len()), content[len(content)-width*tokens.Len():]
			_, sumErr := tokens.SHA256()
			require.NoError(t, sumErr)
			if err := tokens.ReadTokens(got, 0); err != nil {
				require.ErrorIs(t, err, corpus.ErrTokens)
				require.Equal(t, 4, width)
			} else {
				for i, token := range got {
					var wide [4]byte
					copy(wide[:], data[i*width:][:width])
					require.EqualValues(t, binary.LittleEndian.Uint32(wide[:]), token)
				}
			}
			require.NoError(t, tokens.Close())
		}
	})
}
