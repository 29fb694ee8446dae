package corpus_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/trainer/corpus"
)

func TestReadFolder(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{
		"b/two.txt": "two ", "a.txt": "one ", "b/image.png": "\x89PNG\r\n\x1a\n\x00", ".git/config": "hidden",
		"b/.hidden": "hidden", "c": "three", "d/packed.gz": "\x1f\x8b\x08\x01\x02\x03\x04\x05", "e": "",
	} {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o777))
		require.NoError(t, os.WriteFile(path, []byte(content), 0o666))
	}
	require.NoError(t, os.Symlink(filepath.Join(dir, "a.txt"), filepath.Join(dir, "f.txt")))
	text, err := corpus.Read(t.Context(), dir, 1<<20, nil)
	require.NoError(t, err)
	require.Equal(t, "one two three", string(text.Bytes))
	require.False(t, text.Cut)

	for most, want := range map[int]string{4: "one ", 5: "one t", 12: "one two thre"} {
		cut := folderText(t, dir, most)
		require.Equal(t, want, string(cut.Bytes))
		require.True(t, cut.Cut)
	}
	whole := folderText(t, dir, 13)
	require.Equal(t, "one two three", string(whole.Bytes))
	require.False(t, whole.Cut)
}

func folderText(t *testing.T, dir string, most int) *corpus.Text {
	t.Helper()
	text, err := corpus.Read(t.Context(), dir, most, corpus.LooksLikeText)
	require.NoError(t, err)
	return text
}

func TestReadEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := corpus.Read(ctx, t.TempDir(), 1, nil)
	require.ErrorIs(t, err, context.Canceled)
}

// A file that is named directly is read with any contents if want is nil.
func TestReadFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "binary")
	require.NoError(t, os.WriteFile(path, []byte("a\x00b"), 0o666))
	text, err := corpus.Read(t.Context(), path, 10, nil)
	require.NoError(t, err)
	require.Equal(t, []byte("a\x00b"), text.Bytes)
	_, err = corpus.Read(t.Context(), path, 10, corpus.LooksLikeText)
	require.ErrorContains(t, err, "is empty: name a file with text in it")
}

func TestEntropy(t *testing.T) {
	require.Zero(t, (&corpus.Text{Bytes: []byte("aaaa")}).Entropy())
	require.InDelta(t, 0.6931, (&corpus.Text{Bytes: []byte("abab")}).Entropy(), 1e-4)
}
