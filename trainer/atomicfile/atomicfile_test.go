package atomicfile_test

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"os"
	"path/filepath"
	"testing"
	"time"

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

// A file is replaced whole, also behind a link, which remains. On failure the file remains unchanged.
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

// A log has another name until it is complete.
func Example() {
	parent, err := os.MkdirTemp("", "atomicfile")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(parent)
	folder, err := atomicfile.NewFolder(parent, time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC))
	if err != nil {
		log.Fatal(err)
	}
	losses, err := atomicfile.NewStream(filepath.Join(folder, "losses.csv"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Fprintln(losses, "0,5.55")
	names := func() {
		entries, _ := os.ReadDir(folder)
		for _, entry := range entries {
			fmt.Println(filepath.Base(folder), entry.Name())
		}
	}
	names()
	if err := losses.Finish(); err != nil {
		log.Fatal(err)
	}
	names()
	// Output:
	// 2026-11-22T12-00-00 losses.csv.partial
	// 2026-11-22T12-00-00 losses.csv
}

func TestStream(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	s, err := atomicfile.NewStream(path)
	require.NoError(t, err)
	require.Equal(t, path, s.Path())
	_, err = s.Write([]byte("one\ntwo"))
	require.NoError(t, err)
	requireText(t, path+atomicfile.Partial, "")
	require.NoError(t, s.Flush())
	requireText(t, path+atomicfile.Partial, "one\ntwo")
	_, err = atomicfile.NewStream(path)
	require.ErrorIs(t, err, fs.ErrExist)
	require.ErrorContains(t, err, path+atomicfile.Partial)
	require.NoError(t, s.Finish())
	require.NoFileExists(t, path+atomicfile.Partial)
	requireText(t, path, "one\ntwo")
	_, err = atomicfile.NewStream(path)
	require.ErrorIs(t, err, fs.ErrExist)

	other, err := atomicfile.NewStream(path + "2")
	require.NoError(t, err)
	require.NoError(t, other.Discard())
	require.NoError(t, other.Discard())
	require.NoFileExists(t, path+"2"+atomicfile.Partial)
}

// If a stream cannot get its name, the lines written remain. examples/train has tests with full
// disks.
func TestStreamFails(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	s, err := atomicfile.NewStream(path)
	require.NoError(t, err)
	_, err = s.Write([]byte("one\n"))
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(filepath.Join(path, "taken"), 0o777))
	err = s.Finish()
	require.ErrorIs(t, err, atomicfile.ErrWriting)
	require.ErrorContains(t, err, "make room or name another place; what was written before is in "+path+".partial")
	requireText(t, path+atomicfile.Partial, "one\n")
}

func TestNewFolder(t *testing.T) {
	parent := filepath.Join(t.TempDir(), "a", "b")
	now := time.Date(2026, 11, 22, 1, 2, 3, 0, time.UTC)
	for _, want := range []string{"2026-11-22T01-02-03", "2026-11-22T01-02-03-2", "2026-11-22T01-02-03-3"} {
		path, err := atomicfile.NewFolder(parent, now)
		require.NoError(t, err)
		require.Equal(t, filepath.Join(parent, want), path)
		require.DirExists(t, path)
	}
	require.NoError(t, os.WriteFile(filepath.Join(parent, "file"), nil, 0o666))
	_, err := atomicfile.NewFolder(filepath.Join(parent, "file"), now)
	require.Error(t, err)
}
