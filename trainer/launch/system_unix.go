//go:build unix

package launch

import (
	"os"
	"os/exec"
	"syscall"
)

// signal sends a signal to a process and its children.
func signal(cmd *exec.Cmd, s os.Signal) {
	if number, ok := s.(syscall.Signal); ok {
		_ = syscall.Kill(-cmd.Process.Pid, number) // it may have ended
	}
}

// ends reports whether a signal asks a process to end.
func ends(s os.Signal) bool {
	return s == os.Interrupt || s == syscall.SIGTERM || s == syscall.SIGHUP
}

// mine reports whether a file belongs to this user.
func mine(info os.FileInfo) bool {
	is, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(is.Uid) == os.Getuid()
}
