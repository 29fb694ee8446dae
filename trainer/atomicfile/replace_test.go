package atomicfile_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/trainer/atomicfile"
)

// names returns the names in a directory.
func names(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// A new file has the permissions of any new file of this user; a replaced file keeps its own.
func TestReplaceKeepsPermissions(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("it has no permissions of this kind")
	}
	dir := t.TempDir()
	path, plain := filepath.Join(dir, "f"), filepath.Join(dir, "plain")
	require.NoError(t, os.WriteFile(plain, nil, 0o666))
	usual, err := os.Stat(plain)
	require.NoError(t, err)
	requireMode := func(want os.FileMode) {
		t.Helper()
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, want, info.Mode())
	}
	require.NoError(t, atomicfile.Replace(path, text("one")))
	requireMode(usual.Mode())
	for _, mode := range []os.FileMode{0o600, 0o444, 0o777} {
		require.NoError(t, os.Chmod(path, mode))
		require.NoError(t, atomicfile.Replace(path, func(w io.Writer) error {
			entries, err := filepath.Glob(filepath.Join(dir, ".f.*"))
			require.NoError(t, err)
			require.Len(t, entries, 1)
			info, err := os.Stat(entries[0])
			require.NoError(t, err)
			require.Zero(t, info.Mode().Perm()&0o077, "other users must not read the file while it is written")
			return text("two")(w)
		}))
		requireMode(mode)
		requireText(t, path, "two")
	}
}

// On failure the file is unchanged, and no other file remains.
func TestReplaceFails(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	require.NoError(t, atomicfile.Replace(path, text("old")))
	unchanged := func() {
		t.Helper()
		require.Equal(t, []string{"f"}, names(t, dir))
		requireText(t, path, "old")
	}
	boom := errors.New("boom")
	require.Equal(t, boom, atomicfile.Replace(path, func(w io.Writer) error {
		require.NoError(t, text(strings.Repeat("x", 1<<20))(w)) // some of it is on the disk
		return boom
	}), "write's error as it is")
	unchanged()
	require.PanicsWithValue(t, "stop", func() {
		_ = atomicfile.Replace(path, func(io.Writer) error { panic("stop") })
	})
	unchanged()
	err := atomicfile.ReplaceFlushing(path, text("new"), func(*os.File) error { return boom })
	require.ErrorIs(t, err, boom)
	unchanged()

	// The rename fails, because a directory has the name.
	sub := filepath.Join(dir, "sub")
	require.NoError(t, os.MkdirAll(filepath.Join(sub, "d", "inner"), 0o777))
	err = atomicfile.Replace(filepath.Join(sub, "d"), text("x"))
	require.Equal(t, []string{"d"}, names(t, sub))
	at, ok := errors.AsType[*os.PathError](err)
	require.True(t, ok, err)
	require.Equal(t, filepath.Join(sub, "d"), at.Path, "the error has the name of the file")
	require.ErrorIs(t, atomicfile.Replace(filepath.Join(dir, "none", "f"), text("x")), os.ErrNotExist)
}

// The bytes are flushed before the file gets its name, and the name is flushed before Replace
// returns.
func TestReplaceFlushes(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	require.NoError(t, atomicfile.Replace(path, text("old")))
	var flushed []string
	boom := errors.New("boom")
	err := atomicfile.ReplaceFlushing(path, text("new"), func(f *os.File) error {
		if f.Name() == dir {
			flushed = append(flushed, "directory")
			requireText(t, path, "new")
			return boom
		}
		flushed = append(flushed, "file")
		requireText(t, f.Name(), "new")
		requireText(t, path, "old")
		return f.Sync()
	})
	if runtime.GOOS == "windows" {
		require.NoError(t, err)
		require.Equal(t, []string{"file"}, flushed)
		return
	}
	require.ErrorIs(t, err, boom)
	require.Equal(t, []string{"file", "directory"}, flushed)
}

// While a file is replaced repeatedly, a reader always finds it complete.
func TestReplaceUnderReaders(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a file that is open cannot be replaced there")
	}
	path := filepath.Join(t.TempDir(), "f")
	save := func(n int) error { return atomicfile.Replace(path, text(strings.Repeat("x", n)+"\n")) }
	require.NoError(t, save(1))
	done := make(chan error)
	go func() {
		for i := range 30 {
			if err := save(1 + i*30_000); err != nil {
				done <- err
				return
			}
		}
		close(done)
	}()
	for {
		select {
		case err := <-done:
			require.NoError(t, err)
			return
		default:
			content, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Equal(t, len(content)-1, strings.IndexByte(string(content), '\n'))
		}
	}
}

// Writable returns the error that a write would return, and leaves no file.
func TestWritable(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	require.NoError(t, atomicfile.Writable(file))
	require.NoError(t, os.Symlink(filepath.Join("none", "file"), link))
	require.ErrorIs(t, atomicfile.Writable(link), os.ErrNotExist)
	require.Error(t, atomicfile.Writable(dir))
	require.Equal(t, []string{"link"}, names(t, dir))
}
