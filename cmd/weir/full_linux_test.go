package main

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// A pipe whose reader leaves ends a command that writes to it.
func TestPipeEnds(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	go func() {
		if reader, err := os.Open(pipe); err == nil {
			reader.Close()
		}
	}()
	_, stderr, status := weir("", "draw", "interleaved", "--ranks", "8", "--microbatches", "512", "--trace", "-o", pipe)
	require.NotZero(t, status)
	require.Contains(t, stderr, "broken pipe")
}

// What cannot be written whole is not there in the end. A device stays.
func TestFullDeviceStays(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("there is no /dev/full here: ", err)
	}
	full := filepath.Join(t.TempDir(), "full")
	require.NoError(t, os.Symlink("/dev/full", full))
	_, stderr, status := weir("", "draw", "1f1b", "--ranks", "2", "--microbatches", "2", "-o", full)
	require.NotZero(t, status)
	require.Contains(t, stderr, "no space left on device")
	_, err := os.Lstat(full)
	require.NoError(t, err, "it was removed")
}
