package launch

import (
	"runtime"
	"syscall"
)

// attributes puts a process into its own group, so that a signal of the terminal reaches it
// once, from here, and ends it where this process is killed.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// lockThread keeps the thread that starts the processes: they end with it.
func lockThread() (unlock func()) {
	runtime.LockOSThread()
	return runtime.UnlockOSThread
}
