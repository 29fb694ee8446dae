//go:build !unix

package launch

import (
	"os"
	"os/exec"
	"syscall"
)

// attributes are those that a process has by default.
func attributes() *syscall.SysProcAttr { return nil }

// lockThread does nothing: processes do not end with a thread here.
func lockThread() (unlock func()) { return func() {} }

// signal ends a process: there is no other signal.
func signal(cmd *exec.Cmd, _ os.Signal) {
	_ = cmd.Process.Kill() // It may be gone.
}

// mine reports whether a file belongs to this user: the system does not say, and its temporary
// folder is the user's own.
func mine(os.FileInfo) bool { return true }
