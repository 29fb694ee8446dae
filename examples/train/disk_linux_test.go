package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// limitFiles makes every write beyond size bytes of a file fail until the test
// ends, as a full disk would.
func limitFiles(t *testing.T, size uint64) {
	t.Helper()
	var before syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_FSIZE, &before))
	limit := before
	limit.Cur = size
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit))
	t.Cleanup(func() { require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &before)) })
}

// A full disk ends the run with one line, and leaves nothing half-written.
func TestFullDisk(t *testing.T) {
	text := sentence(t)
	for _, c := range []struct {
		name  string
		limit uint64 // the log of three steps has 11 KiB, the page 20, the checkpoint 60
		flags []string
		want  string
		left  []string // what is whole and stays
	}{
		{"memory log", 1 << 10, nil, "memory.jsonl: file too large: make room or name another place", []string{"losses.csv"}},
		{"losses", 100, nil, "file too large: make room or name another place", nil},
		{"page", 14 << 10, nil, "report.html: file too large: make room or name another place", []string{"losses.csv", "memory.jsonl"}},
		{"checkpoint", 40 << 10, []string{"-checkpoint", "checkpoint"}, "checkpoint: file too large: make room or name another place", []string{"losses.csv", "memory.jsonl", "report.html"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			t.Chdir(dir)
			limitFiles(t, c.limit)
			var out, errs bytes.Buffer
			args := append(append(append([]string{}, tiny...), "-data", text, "-run", "run"), c.flags...)
			status := run(t.Context(), args, &out, &errs)
			requireOneLine(t, status, errs.String(), c.want)
			require.Equal(t, c.left, names(t, "run"))
			require.NoFileExists(t, "checkpoint")
			require.LessOrEqual(t, len(names(t, ".")), 1, "no temporary file is left")
		})
	}
}

// names returns the names in a folder, nil where there is none.
func names(t *testing.T, path string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(path)
	if !os.IsNotExist(err) {
		require.NoError(t, err)
	}
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

// What is no file is written to as it is: a device is not replaced.
func TestFullDevice(t *testing.T) {
	text := sentence(t)
	link := filepath.Join(t.TempDir(), "full") // a link, so that a fault here replaces no device
	require.NoError(t, os.Symlink("/dev/full", link))
	for _, flag := range []string{"-json", "-checkpoint"} {
		status, _, _, stderr := runTiny(t, "-data", text, flag, link)
		requireOneLine(t, status, stderr, "full: no space left on device: make room or name another place")
	}
	info, err := os.Lstat(link)
	require.NoError(t, err)
	require.NotZero(t, info.Mode()&os.ModeSymlink)

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
		require.Equal(t, exitError, status)
		require.Contains(t, errs.String(), "no space left on device")
	}
}
