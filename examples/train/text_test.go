package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
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
	text, err := readText(t.Context(), dir)
	require.NoError(t, err)
	require.Equal(t, "one two three", string(text.bytes))
	require.Equal(t, 3, text.files)
	require.False(t, text.cut)

	for most, want := range map[int]string{4: "one ", 5: "one t", 12: "one two thre"} {
		cut := folderText(t, dir, most)
		require.Equal(t, want, string(cut.bytes))
		require.True(t, cut.cut)
	}
	whole := folderText(t, dir, 13)
	require.Equal(t, "one two three", string(whole.bytes))
	require.False(t, whole.cut)
}

func folderText(t *testing.T, dir string, most int) *text {
	t.Helper()
	var read text
	require.NoError(t, read.readFolder(t.Context(), dir, most, isText))
	return &read
}

func TestDefaultText(t *testing.T) {
	text, err := readText(t.Context(), "")
	require.NoError(t, err)
	require.NotEmpty(t, text.bytes)
}

// Where there is no Opticks the standard library's source stands in.
func TestSourceText(t *testing.T) {
	var read text
	const most = 1 << 20
	require.NoError(t, read.readFolder(t.Context(), filepath.Join(goroot(t.Context()), "src"), most, isGo))
	require.Len(t, read.bytes, most)
	require.True(t, read.cut)
	require.Contains(t, string(read.bytes), "package ")
}

func TestEntropy(t *testing.T) {
	require.Zero(t, (&text{bytes: []byte("aaaa")}).entropy())
	require.InDelta(t, 0.6931, (&text{bytes: []byte("abab")}).entropy(), 1e-4)
}

func TestSplit(t *testing.T) {
	training, heldout, err := split(&text{bytes: []byte("0123456789abcdefghij?")}, 1)
	require.NoError(t, err)
	require.Equal(t, "0123456789abcdefghi", string(training))
	require.Equal(t, "j?", string(heldout))
	_, _, err = split(&text{bytes: []byte("0123456789abcdefghij?")}, 2)
	require.ErrorContains(t, err, "longer than the data")
}
