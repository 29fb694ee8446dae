package atomicfile_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/trainer/atomicfile"
)

func text(s string) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := io.WriteString(w, s)
		return err
	}
}

func requireText(t *testing.T, path, want string) {
	t.Helper()
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, want, string(got))
}

// A file is replaced whole, also behind a link, which remains; or it remains unchanged.
func TestWrite(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	require.NoError(t, atomicfile.Write(file, text("one")))
	requireText(t, file, "one")
	require.NoError(t, os.Symlink("file", link))
	require.NoError(t, atomicfile.Write(link, text("two")))
	requireText(t, file, "two")
	failed := errors.New("failed")
	require.ErrorIs(t, atomicfile.Write(link, func(w io.Writer) error {
		return errors.Join(text("three")(w), failed)
	}), failed)
	requireText(t, file, "two")
	info, err := os.Lstat(link)
	require.NoError(t, err)
	require.NotZero(t, info.Mode()&os.ModeSymlink, "the link was replaced")
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 2, "something was left")
	require.ErrorIs(t, atomicfile.Write(filepath.Join(dir, "none", "file"), text("x")), os.ErrNotExist)
	require.Error(t, atomicfile.Write(dir, text("x")))
	loop := filepath.Join(dir, "loop")
	require.NoError(t, os.Symlink("loop", loop))
	require.Error(t, atomicfile.Write(loop, text("x")))
}

// Standard output that is redirected to a file is written through its descriptor: the file and
// its contents remain.
func TestWriteStandardOutput(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out")
	require.NoError(t, os.WriteFile(path, []byte("before "), 0o600))
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	require.NoError(t, err)
	defer file.Close()
	stdout := os.Stdout
	os.Stdout = file
	defer func() { os.Stdout = stdout }()
	link := filepath.Join(t.TempDir(), "stdout") // as /dev/stdout is
	require.NoError(t, os.Symlink(path, link))
	require.NoError(t, atomicfile.Write(link, text("and ")))
	_, err = file.WriteString("after")
	require.NoError(t, err)
	requireText(t, path, "before and after")
}
