package launch

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
)

// maxFolder is the maximum length of the path of a folder for sockets: on some systems, the path
// of a socket may have at most 103 bytes.
const maxFolder = 70

// socketFolder returns the folder for the sockets of launchers and of running processes:
// TMPDIR, or /tmp if its path is too long.
func socketFolder() string {
	if dir := os.TempDir(); len(dir) <= maxFolder {
		return dir
	}
	return "/tmp"
}

const (
	jobPrefix  = "weir-job-"
	launchName = "launch" // the socket at which the process that made a folder listens as long as it lives
)

// Folder creates a folder for the files of this process, such as the sockets of a job, and removes
// the folders of killed processes. The caller must call remove.
func Folder() (folder string, remove func(), err error) {
	removeLeft()
	if folder, err = os.MkdirTemp(socketFolder(), jobPrefix); err != nil {
		return "", nil, fmt.Errorf("launch: a folder for sockets: %w: set TMPDIR to a folder whose path has at most %d bytes", err, maxFolder)
	}
	// The socket gets its name only once it listens. Otherwise, another process might find that
	// it refuses connections, and remove the folder.
	begins := filepath.Join(folder, "new")
	listener, err := net.Listen("unix", begins)
	if err != nil {
		return "", nil, errors.Join(fmt.Errorf("launch: %w", err), os.RemoveAll(folder))
	}
	_ = os.Rename(begins, filepath.Join(folder, launchName)) // without this name, the folder of a killed launcher stays
	return folder, func() {
		_ = listener.Close()
		_ = os.RemoveAll(folder) // a socket left in it is useless
	}, nil
}

// removeLeft removes the folders and status sockets that this user's killed processes have left behind.
func removeLeft() {
	folders, _ := filepath.Glob(filepath.Join(socketFolder(), jobPrefix+"*")) // the pattern is valid unless TMPDIR is unusual
	for _, folder := range folders {
		info, err := os.Lstat(folder)
		if err != nil || !info.IsDir() || !mine(info) || !refuses(filepath.Join(folder, launchName)) {
			continue
		}
		files, _ := filepath.Glob(filepath.Join(folder, "*"))
		left := true
		for _, file := range files { // a rank may outlive its launcher
			left = left && (checkSocket(file) != nil || refuses(file))
		}
		if left {
			_ = os.RemoveAll(folder)
		}
	}
	for process, path := range statusSockets() {
		if gone(process) && refuses(path) { // a process that is starting refuses connections for a moment
			_ = os.Remove(path)
		}
	}
}

// refuses reports whether a path is a socket of this user at which no process listens.
func refuses(path string) bool {
	if checkSocket(path) != nil {
		return false
	}
	conn, err := net.DialTimeout("unix", path, patience)
	if err == nil {
		_ = conn.Close() // nothing was sent
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

// checkSocket returns an error if a path is not a socket, or belongs to another user.
func checkSocket(path string) error {
	switch info, err := os.Lstat(path); {
	case err != nil:
		return err
	case info.Mode()&os.ModeSocket == 0:
		return fmt.Errorf("%s is not a socket", path)
	case !mine(info):
		return fmt.Errorf("%s belongs to another user", path)
	}
	return nil
}
