//go:build !unix

package launch

import (
	"os"
	"os/exec"
	"syscall"
)

// attributes returns the default attributes.
func attributes() *syscall.SysProcAttr { return nil }

// lockThread does nothing: on these systems processes do not end with a thread.
func lockThread() (unlock func()) { return func() {} }

// signal kills a process, because there are no other signals.
func signal(cmd *exec.Cmd, _ os.Signal) {
	_ = cmd.Process.Kill() // it may have ended
}

// ends reports whether a signal asks a process to end.
func ends(s os.Signal) bool { return s == os.Interrupt || s == syscall.SIGTERM }

// mine reports whether a file belongs to this user. The system does not report owners, but its
// temporary folder belongs to the user.
func mine(os.FileInfo) bool { return true }
