//go:build unix && !linux

package launch

import "syscall"

// attributes puts a process into its own group, so that it receives a signal of the terminal
// only from the launcher.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// lockThread does nothing: on these systems processes do not end with a thread.
func lockThread() (unlock func()) { return func() {} }
