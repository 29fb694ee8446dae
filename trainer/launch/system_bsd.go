//go:build unix && !linux

package launch

import "syscall"

// attributes puts a process into its own group, so that it receives the terminal's signals only
// through the launcher.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// lockThread does nothing: on these systems processes do not end with a thread.
func lockThread() (unlock func()) { return func() {} }
