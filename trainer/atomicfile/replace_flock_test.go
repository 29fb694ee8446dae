//go:build darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd

package atomicfile_test

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/trainer/atomicfile"
)

// TestMain also runs the writer of TestReplaceSweeps, a process that pauses while it replaces a file.
func TestMain(m *testing.M) {
	if path := os.Getenv("OUTFILE_TEST_WRITER"); path != "" {
		err := atomicfile.Replace(path, func(w io.Writer) error {
			io.WriteString(w, strings.Repeat("x", 1<<17))
			io.WriteString(os.Stdout, "writing\n")
			_, err := bufio.NewReader(os.Stdin).ReadString('\n')
			return err
		})
		if err != nil {
			panic(err)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// writer starts a process that writes path until it reads a line from its input.
func writer(t *testing.T, path string) (*exec.Cmd, io.Writer) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "OUTFILE_TEST_WRITER="+path)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	_, err = bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	return cmd, in
}

// The temporary file of a killed writer is removed when the same file is written next;
// temporary files of live writers, in this process or another, and of other files, stay.
func TestReplaceSweeps(t *testing.T) {
	dir := t.TempDir()
	path, other := filepath.Join(dir, "f"), filepath.Join(dir, "other")
	dead, _ := writer(t, path)
	require.NoError(t, dead.Process.Kill())
	_ = dead.Wait()
	require.Len(t, names(t, dir), 1, "it was killed in the middle")
	live, in := writer(t, path)
	left, _ := writer(t, other)
	require.NoError(t, left.Process.Kill())
	_ = left.Wait()
	require.NoError(t, syscall.Mkfifo(filepath.Join(dir, ".f.weir-pipe.tmp"), 0o600))
	require.NoError(t, os.Symlink("other", filepath.Join(dir, ".f.weir-link.tmp")))

	require.NoError(t, atomicfile.Replace(path, func(w io.Writer) error {
		return atomicfile.Replace(path, text("inner"))
	}))
	requireText(t, path, "")
	var temporary, others int
	for _, name := range names(t, dir) {
		switch {
		case strings.HasPrefix(name, ".other.weir-"):
			others++
		case strings.HasPrefix(name, ".f.weir-") && !strings.Contains(name, "weir-pipe") && !strings.Contains(name, "weir-link"):
			temporary++
		}
	}
	require.Equal(t, 1, temporary, "the file of the live writer: %v", names(t, dir))
	require.Equal(t, 1, others, "the temporary file of another file")

	_, err := io.WriteString(in, "\n")
	require.NoError(t, err)
	require.NoError(t, live.Wait())
	requireText(t, path, strings.Repeat("x", 1<<17))
}

// A file of another user that root replaces still belongs to that user.
func TestReplaceKeepsOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root gives files away")
	}
	path := filepath.Join(t.TempDir(), "f")
	require.NoError(t, atomicfile.Replace(path, text("one")))
	require.NoError(t, os.Chown(path, 12, 34))
	require.NoError(t, atomicfile.Replace(path, text("two")))
	info, err := os.Stat(path)
	require.NoError(t, err)
	is := info.Sys().(*syscall.Stat_t)
	require.Equal(t, []uint32{12, 34}, []uint32{is.Uid, is.Gid})
}
