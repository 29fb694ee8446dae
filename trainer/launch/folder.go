package launch

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
)

// mostFolder is the longest path of a folder for sockets: a socket's own path has at most 103
// bytes on every system.
const mostFolder = 70

// socketFolder is where the sockets of launchers and of running processes are: TMPDIR, or /tmp if
// its path is too long.
func socketFolder() string {
	if dir := os.TempDir(); len(dir) <= mostFolder {
		return dir
	}
	return "/tmp"
}

const (
	jobPrefix  = "weir-job-"
	launchName = "launch" // the socket of a launcher, which lives as long as it
)

// jobFolder makes a folder for the sockets of a job, and removes those of launchers that were
// killed. The caller calls remove.
func jobFolder() (folder string, remove func(), err error) {
	removeLeft()
	if folder, err = os.MkdirTemp(socketFolder(), jobPrefix); err != nil {
		return "", nil, fmt.Errorf("launch: a folder for sockets: %w: set TMPDIR to a folder whose path has at most %d bytes", err, mostFolder)
	}
	listener, err := net.Listen("unix", filepath.Join(folder, launchName))
	if err != nil {
		return "", nil, errors.Join(fmt.Errorf("launch: %w", err), os.RemoveAll(folder))
	}
	return folder, func() {
		_ = listener.Close()
		_ = os.RemoveAll(folder) // A socket in it is of no use to anybody.
	}, nil
}

// removeLeft removes what killed processes of this user have left: folders of jobs, and sockets
// at which running processes said what they do.
func removeLeft() {
	folders, _ := filepath.Glob(filepath.Join(socketFolder(), jobPrefix+"*")) // The pattern is well-formed unless TMPDIR is odd.
	for _, folder := range folders {
		info, err := os.Lstat(folder)
		if err != nil || !info.IsDir() || !mine(info) || !refuses(filepath.Join(folder, launchName)) {
			continue
		}
		sockets, _ := filepath.Glob(filepath.Join(folder, "*"))
		left := true
		for _, socket := range sockets { // A rank may live longer than its launcher.
			left = left && refuses(socket)
		}
		if left {
			_ = os.RemoveAll(folder)
		}
	}
	for process, path := range statusSockets() {
		if gone(process) && refuses(path) { // A process that begins refuses for a moment.
			_ = os.Remove(path)
		}
	}
}

// refuses reports whether a path is a socket of this user at which nobody listens any more.
func refuses(path string) bool {
	if checkSocket(path) != nil {
		return false
	}
	conn, err := net.DialTimeout("unix", path, patience)
	if err == nil {
		_ = conn.Close() // Nothing was said.
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

// checkSocket reports a path that is no socket, or another user's.
func checkSocket(path string) error {
	switch info, err := os.Lstat(path); {
	case err != nil:
		return err
	case info.Mode()&os.ModeSocket == 0:
		return fmt.Errorf("%s is no socket", path)
	case !mine(info):
		return fmt.Errorf("%s belongs to another user", path)
	}
	return nil
}
