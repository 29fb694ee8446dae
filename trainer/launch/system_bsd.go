//go:build unix && !linux

package launch

import "syscall"

// attributes puts a process into its own group, so that a signal of the terminal reaches it
// once, from here.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// lockThread does nothing: processes do not end with a thread here.
func lockThread() (unlock func()) { return func() {} }
