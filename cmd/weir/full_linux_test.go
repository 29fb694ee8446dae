package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// What cannot be written whole is removed where it is a file. A device stays.
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
