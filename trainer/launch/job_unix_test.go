//go:build unix

package launch_test

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/trainer/launch"
)

// The children of a failed process do not outlive it: the pipe that they hold is closed.
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

// A process binds its socket before it listens: Statuses must not remove the socket in between.
func TestStatusOfOneThatBegins(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	path := filepath.Join(os.TempDir(), fmt.Sprint("weir-status-", os.Getpid()))
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	require.NoError(t, err)
	listener.SetUnlinkOnClose(false)
	require.NoError(t, listener.Close())
	_, err = launch.Statuses(os.Getpid())
	require.ErrorContains(t, err, "does not report its status")
	require.FileExists(t, path)
}

// listen listens at a socket; if alive is false, the socket is left as after SIGKILL.
func listen(t *testing.T, path string, alive bool) *net.UnixListener {
	t.Helper()
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	require.NoError(t, err)
	listener.SetUnlinkOnClose(false)
	if alive {
		t.Cleanup(func() { require.NoError(t, listener.Close()) })
	} else {
		require.NoError(t, listener.Close())
	}
	return listener
}

// ended returns the process number of a process that has ended.
func ended(t *testing.T) int {
	t.Helper()
	cmd := exec.Command("true")
	require.NoError(t, cmd.Run())
	return cmd.Process.Pid
}

// The next job removes the files that SIGKILL left in TMPDIR, and nothing else.
func TestLeftovers(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	for name, alive := range map[string]map[string]bool{
		"weir-job-left":    {"launch": false, "job": false, "job.1": false},
		"weir-job-runs":    {"launch": true, "job": false},
		"weir-job-survive": {"launch": false, "job": false, "job.1": true},
		"weir-job-other":   {},
	} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, name), 0o700))
		for socket, alive := range alive {
			listen(t, filepath.Join(dir, name, socket), alive)
		}
	}
	page := filepath.Join(dir, "weir-job-page") // of a server
	require.NoError(t, os.MkdirAll(filepath.Join(page, "page"), 0o700))
	listen(t, filepath.Join(page, "launch"), false)
	left := fmt.Sprint("weir-status-", ended(t))
	listen(t, filepath.Join(dir, left), false)
	listen(t, filepath.Join(dir, "weir-status-1"), false) // it may be about to listen
	job, _ := shell(1, "")
	_, err := job.Run(t.Context())
	require.NoError(t, err)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	require.Equal(t, []string{"weir-job-other", "weir-job-runs", "weir-job-survive", "weir-status-1"}, names)
}

// Other processes that remove the folders of killed jobs leave the folder of a job that is starting.
func TestFolderOfOneThatBegins(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	over := make(chan struct{})
	var others sync.WaitGroup
	for range 2 {
		others.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
					_, _ = launch.Statuses() // there are none
				}
			}
		})
	}
	for range 200 {
		folder, remove, err := launch.Folder()
		assert.NoError(t, err)
		conn, err := net.Dial("unix", filepath.Join(folder, "launch"))
		if assert.NoError(t, err) {
			assert.NoError(t, conn.Close())
		}
		remove()
	}
	close(over)
	others.Wait()
}

// Statuses queries all processes concurrently: one answers only after another was queried.
func TestStatusesAreAskedTogether(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	one, other := listen(t, filepath.Join(dir, "weir-status-1"), true), listen(t, filepath.Join(dir, "weir-status-2"), true)
	asked := make(chan struct{})
	go func() {
		conn, err := one.Accept()
		if err != nil {
			return
		}
		<-asked
		_, _ = io.WriteString(conn, `{"Text": "one"}`)
		_ = conn.Close()
	}()
	go func() {
		conn, err := other.Accept()
		close(asked)
		if err != nil {
			return
		}
		_, _ = io.WriteString(conn, `{"Text": "`+strings.Repeat("x", 1<<20)+`"}`)
		_ = conn.Close()
	}()
	all, err := launch.Statuses(1, 2)
	require.ErrorContains(t, err, "process 2 does not report its status")
	require.Equal(t, []launch.Status{{Process: 1, Text: "one"}}, all)
}

// Sockets of other users, and other files, are not queried.
func TestStatusesOfOthers(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can give a socket to another user")
	}
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	path := filepath.Join(dir, "weir-status-1")
	listener := listen(t, path, true)
	require.NoError(t, os.Chown(path, 1, -1))
	require.NoError(t, os.Symlink(path, filepath.Join(dir, "weir-status-2")))
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, "trust me")
			_ = conn.Close()
		}
	}()
	all, err := launch.Statuses()
	require.NoError(t, err)
	require.Empty(t, all)
	_, err = launch.Statuses(1)
	require.ErrorContains(t, err, "belongs to another user")
	_, err = launch.Statuses(2)
	require.ErrorContains(t, err, "is not a socket")
}

// If the path of TMPDIR is longer than the path of a socket may be, jobs still connect and
// report their status.
func TestLongTemporaryFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("long", 30))
	require.NoError(t, os.Mkdir(dir, 0o700))
	t.Setenv("TMPDIR", dir)
	job, out := shell(1, `echo "${WEIR_ADDRESS#unix:}"`)
	_, err := job.Run(t.Context())
	require.NoError(t, err)
	require.Less(t, len(strings.TrimSpace(out.String())), 4+103-len(".65535"), out)
	server, err := launch.ServeStatus(func() launch.Status { return launch.Status{Text: "here"} })
	require.NoError(t, err)
	all, err := launch.Statuses(os.Getpid())
	require.NoError(t, err)
	require.Equal(t, []launch.Status{{Process: os.Getpid(), Text: "here"}}, all)
	require.NoError(t, server.Close())
}

// A job that was asked to end is not restarted, whether its processes catch the signal or not, and
// whatever status they end with.
func TestAskedToEnd(t *testing.T) {
	for script, test := range map[string]struct {
		signal syscall.Signal
		status int
	}{
		"exec sleep 1000":                                          {syscall.SIGTERM, 128 + 15},
		"trap '' USR1; exec sleep 1000; true":                      {syscall.SIGHUP, 128 + 1},
		"exec sleep 1000; false":                                   {syscall.SIGINT, 128 + 2},
		"trap 'exit 130' TERM; echo; while :; do sleep 0.02; done": {syscall.SIGTERM, launch.Interrupted},
		"trap 'exit 1' HUP; echo; while :; do sleep 0.02; done":    {syscall.SIGHUP, 1},
	} {
		t.Run(script, func(t *testing.T) {
			t.Parallel()
			if signal.Ignored(test.signal) {
				t.Skip("the tests run under nohup, and a shell cannot trap what it ignored from the beginning")
			}
			signals := make(chan os.Signal, 3)
			ready := filepath.Join(t.TempDir(), "ready")
			job, out := shell(2, "echo >>"+ready+"; "+script)
			job.Signals, job.Restarts = signals, 3
			go func() {
				for text := ""; len(text) < 2; time.Sleep(10 * time.Millisecond) {
					read, _ := os.ReadFile(ready)
					text = string(read)
				}
				time.Sleep(100 * time.Millisecond)
				signals <- test.signal
			}()
			status, err := job.Run(t.Context())
			require.Equal(t, test.status, status, "%v: %s", err, out)
			require.ErrorContains(t, err, "launch: interrupted")
			require.NotContains(t, out.String(), "again")
		})
	}
}
