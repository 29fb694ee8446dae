package main

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// A command that writes to a pipe ends when the reader closes it.
func TestPipeEnds(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	go func() {
		if reader, err := os.Open(pipe); err == nil {
			reader.Close()
		}
	}()
	_, stderr, status := weir("", "draw", "interleaved", "--ranks", "8", "--microbatches", "512", "--to", "perfetto", "-o", pipe)
	require.NotZero(t, status)
	require.Contains(t, stderr, "broken pipe")
}

// A device that has no space is neither removed nor replaced.
func TestFullDeviceStays(t *testing.T) {
	full := filepath.Join(t.TempDir(), "full.svg")
	if os.Geteuid() != 0 {
		require.NoError(t, os.Symlink("/dev/full", full))
	} else if err := syscall.Mknod(full, syscall.S_IFCHR|0o666, 1<<8|7); err != nil { // root could replace /dev/full
		t.Skip("no device can be made here: ", err)
	}
	if device, err := os.OpenFile(full, os.O_WRONLY, 0); err != nil {
		t.Skip("no device is for use here: ", err)
	} else {
		require.NoError(t, device.Close())
	}
	_, stderr, status := weir("", "draw", "1f1b", "--ranks", "2", "--microbatches", "2", "-o", full)
	require.NotZero(t, status)
	require.Contains(t, stderr, "no space left on device")
	info, err := os.Stat(full)
	require.NoError(t, err, "it was removed")
	require.NotZero(t, info.Mode()&os.ModeDevice, "it was replaced")
}
