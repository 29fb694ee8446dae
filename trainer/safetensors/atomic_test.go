package safetensors_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	st "github.com/weir-ml/weir/trainer/safetensors"
)

func write(text string) func(io.Writer) error {
	return func(w io.Writer) error { _, err := io.WriteString(w, text); return err }
}

// contents returns the names in a directory and the text of one of them.
func contents(t *testing.T, dir, name string) ([]string, string) {
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	b, err := os.ReadFile(filepath.Join(dir, name))
	require.NoError(t, err)
	return names, string(b)
}

func TestWriteFileAtomic(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	require.NoError(t, st.WriteFileAtomic(path, write("one")))
	require.NoError(t, st.WriteFileAtomic(path, write("two")))
	names, text := contents(t, dir, "f")
	require.Equal(t, []string{"f"}, names)
	require.Equal(t, "two", text)
	if runtime.GOOS != "windows" {
		plain := filepath.Join(dir, "plain")
		require.NoError(t, os.WriteFile(plain, nil, 0o666))
		want, err := os.Stat(plain)
		require.NoError(t, err)
		got, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, want.Mode(), got.Mode(), "the permissions of any new file")
	}
}

func TestWriteFileAtomicFails(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	require.NoError(t, st.WriteFileAtomic(path, write("old")))
	unchanged := func() {
		names, text := contents(t, dir, "f")
		require.Equal(t, []string{"f"}, names)
		require.Equal(t, "old", text)
	}

	boom := errors.New("boom")
	err := st.WriteFileAtomic(path, func(w io.Writer) error {
		_, err := io.WriteString(w, strings.Repeat("x", 1<<20)) // some of it is on the disk
		return errors.Join(err, boom)
	})
	require.ErrorIs(t, err, boom)
	require.EqualError(t, err, "safetensors: writing "+path+": boom")
	unchanged()

	require.PanicsWithValue(t, "stop", func() {
		_ = st.WriteFileAtomic(path, func(io.Writer) error { panic("stop") })
	})
	unchanged()

	require.ErrorIs(t, st.WriteFile(path, nil, st.Of("a", []int{9}, []float32{1})), st.ErrInput)
	unchanged()

	// The rename is what fails: a directory has the name.
	sub := filepath.Join(dir, "sub")
	require.NoError(t, os.MkdirAll(filepath.Join(sub, "d", "inner"), 0o777))
	require.Error(t, st.WriteFileAtomic(filepath.Join(sub, "d"), write("x")))
	entries, err := os.ReadDir(sub)
	require.NoError(t, err)
	require.Len(t, entries, 1, "no temporary file is left")

	err = st.WriteFileAtomic(filepath.Join(dir, "none", "f"), write("x"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

// TestWriteFileAtomicReaders opens a file while it is replaced again and again:
// a reader always finds one of the complete files.
func TestWriteFileAtomicReaders(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a file that is open cannot be replaced there")
	}
	path := filepath.Join(t.TempDir(), "w.safetensors")
	save := func(n int) error {
		return st.WriteFile(path, nil, st.Of("w", []int{n}, make([]float32, n)))
	}
	require.NoError(t, save(1))
	done := make(chan error)
	go func() {
		for i := range 30 {
			if err := save(1 + i*3000); err != nil {
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
			f, err := st.Open(path)
			require.NoError(t, err)
			require.NoError(t, f.Close())
		}
	}
}
