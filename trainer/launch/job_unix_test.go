//go:build unix

package launch_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/weir-ml/weir/trainer/launch"
)

// The children of a failed process do not outlive it: the pipe that it holds ends.
func TestJobChildren(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	read := make(chan error, 1)
	go func() {
		_, err := os.ReadFile(pipe)
		read <- err
	}()
	job, _ := shell(2, `[ $WEIR_RANK = 0 ] && exit 0; exec 9>"$0"; sleep 1000 & exit 7`)
	job.Command = append(job.Command, pipe)
	status, err := job.Run(t.Context())
	require.ErrorContains(t, err, "process 1 has failed: exit status 7")
	require.Equal(t, 7, status)
	select {
	case err := <-read:
		require.NoError(t, err)
	case <-time.After(time.Minute):
		t.Fatal("the process that it has started is still there")
	}
}

// A process binds its socket before it listens: whoever asks then leaves the socket there.
func TestStatusOfOneThatBegins(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	path := filepath.Join(os.TempDir(), fmt.Sprint("weir-status-", os.Getpid()))
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	require.NoError(t, err)
	listener.SetUnlinkOnClose(false)
	require.NoError(t, listener.Close())
	_, err = launch.Statuses(os.Getpid())
	require.ErrorContains(t, err, "does not say what it does")
	require.FileExists(t, path)
}
