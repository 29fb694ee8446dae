package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/trainer/atomicfile"
)

// requireSummary requires that a text is one summary.
func requireSummary(t *testing.T, text string) {
	t.Helper()
	var s summary
	require.NoError(t, json.Unmarshal([]byte(text), &s), text)
	require.Equal(t, 3, s.Steps)
}

// requireLink requires that a link still exists.
func requireLink(t *testing.T, path string) {
	t.Helper()
	info, err := os.Lstat(path)
	require.NoError(t, err)
	require.NotZero(t, info.Mode()&os.ModeSymlink, "the link was replaced")
}

// fullDevice returns the name of a device without free space. Root could replace /dev/full
// because of a bug in the code under test, and so gets a separate device.
func fullDevice(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		return "/dev/full"
	}
	name := filepath.Join(t.TempDir(), "full")
	if err := syscall.Mknod(name, syscall.S_IFCHR|0o666, 1<<8|7); err != nil {
		t.Skip("no device can be made here: ", err)
	}
	if file, err := os.OpenFile(name, os.O_WRONLY, 0); err != nil {
		t.Skip("devices in ", filepath.Dir(name), " are not for use: ", err)
	} else {
		require.NoError(t, file.Close())
	}
	return name
}

// A special file is written to directly: a device is not replaced.
func TestFullDevice(t *testing.T) {
	text := sentence(t)
	link := filepath.Join(t.TempDir(), "full")
	require.NoError(t, os.Symlink(fullDevice(t), link))
	status, _, _, stderr := runTiny(t, "-data", text, "-json", link)
	requireOneLine(t, status, stderr, "full: no space left on device: make room or name another place")
	status, folder, _, stderr := runTiny(t, "-data", text, "-checkpoint", link)
	requireOneLine(t, status, stderr, "full is not a folder: name one")
	require.NoDirExists(t, folder)
	requireLink(t, link)
	info, err := os.Stat(link)
	require.NoError(t, err)
	require.NotZero(t, info.Mode()&os.ModeDevice, "the device was replaced")

	full, err := os.OpenFile(link, os.O_WRONLY, 0)
	require.NoError(t, err)
	defer full.Close()
	for _, c := range []struct {
		flags []string
		out   io.Writer
	}{{nil, full}, {[]string{"-json", "-"}, full}} {
		var errs bytes.Buffer
		args := append(append(append([]string{}, tiny...), "-data", text, "-run", filepath.Join(t.TempDir(), "run")), c.flags...)
		status := run(t.Context(), args, c.out, &errs)
		require.Equal(t, 1, status)
		require.Contains(t, errs.String(), "no space left on device")
	}
}

// Standard output is not replaced when it is named as a file, and redirected output is not
// lost. The name is a link to the target of /dev/stdout, so that a bug replaces no device.
func TestStandardOutputByName(t *testing.T) {
	text := sentence(t)
	for _, flags := range []int{os.O_TRUNC, os.O_APPEND} {
		dir := t.TempDir()
		link, path := filepath.Join(dir, "stdout"), filepath.Join(dir, "out")
		require.NoError(t, os.Symlink("/proc/self/fd/1", link))
		require.NoError(t, os.WriteFile(path, []byte("before\n"), 0o666))
		out, err := os.OpenFile(path, os.O_WRONLY|flags, 0)
		require.NoError(t, err)
		cmd, _ := program(t, "-data", text, "-json", link)
		cmd.Stdout = out
		require.NoError(t, cmd.Run())
		require.NoError(t, out.Close())

		requireLink(t, link)
		content := []byte(read(t, path))
		if flags == os.O_APPEND {
			require.True(t, strings.HasPrefix(string(content), "before\n"))
		}
		require.Contains(t, string(content), "step 3/3")
		require.Contains(t, string(content), "growth per microbatch")
		from, to := strings.Index(string(content), "\n{\n"), strings.Index(string(content), "\n}\n")
		require.Positive(t, from, "the summary is there: %s", content)
		requireSummary(t, string(content[from:to+2]))
		require.Equal(t, []string{"out", "stdout"}, names(t, dir))
	}
}

// A link is followed: its target is either replaced as a whole or left unchanged.
func TestLinkIsFollowed(t *testing.T) {
	text, dir := sentence(t), t.TempDir()
	link, path := filepath.Join(dir, "link"), filepath.Join(dir, "folder", "file")
	require.NoError(t, os.Mkdir(filepath.Dir(path), 0o777))
	require.NoError(t, os.Symlink(filepath.Join("folder", "file"), link))
	for _, old := range []string{"", "old"} { // at first its target does not exist
		if old != "" {
			require.NoError(t, os.WriteFile(path, []byte(old), 0o666))
			require.ErrorIs(t, atomicfile.Write(link, func(w io.Writer) error {
				_, err := io.WriteString(w, "new")
				return errors.Join(err, io.ErrUnexpectedEOF)
			}), io.ErrUnexpectedEOF)
			content := read(t, path)
			require.Equal(t, old, content, "the old contents stay")
		}
		status, _, _, stderr := runTiny(t, "-data", text, "-json", link)
		require.Zero(t, status, stderr)
		requireLink(t, link)
		content := read(t, path)
		requireSummary(t, content)
		require.Equal(t, []string{"file"}, names(t, filepath.Dir(path)))
	}
}

// A link that cannot be followed, or refers to a place where no file can be, is an error before
// a run.
func TestLinkThatLeadsNowhere(t *testing.T) {
	text, dir := sentence(t), t.TempDir()
	loop, gone := filepath.Join(dir, "loop"), filepath.Join(dir, "gone")
	require.NoError(t, os.Symlink("loop", loop))
	require.NoError(t, os.Symlink(filepath.Join("none", "file"), gone))
	for link, why := range map[string]string{loop: "too many levels of symbolic links", gone: "no such file or directory"} {
		status, folder, _, stderr := runTiny(t, "-data", text, "-checkpoint", link)
		requireOneLine(t, status, stderr, link+" cannot be written ("+why+"): name a folder in a writable folder")
		require.NoDirExists(t, folder)
		requireLink(t, link)
	}
}

// A pipe is written to, and a reader that leaves is an error.
func TestPipe(t *testing.T) {
	text, pipe := sentence(t), filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	requirePipe := func() {
		t.Helper()
		info, err := os.Lstat(pipe)
		require.NoError(t, err)
		require.Equal(t, os.ModeNamedPipe, info.Mode().Type())
	}
	read := make(chan string, 1)
	go func() {
		content, _ := os.ReadFile(pipe)
		read <- string(content)
	}()
	status, _, _, stderr := runTiny(t, "-data", text, "-json", pipe)
	require.Zero(t, status, stderr)
	requirePipe() // otherwise nothing was written to the reader
	requireSummary(t, <-read)

	go func() {
		reader, err := os.Open(pipe)
		if err == nil {
			reader.Close()
		}
	}()
	require.ErrorIs(t, atomicfile.Write(pipe, func(w io.Writer) error {
		for {
			if _, err := w.Write(make([]byte, 1<<16)); err != nil {
				return err
			}
		}
	}), syscall.EPIPE)
	requirePipe()
}
