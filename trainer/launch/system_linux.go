package launch

import (
	"runtime"
	"syscall"
)

// attributes puts a process into its own group, so that it receives the terminal's signals only
// through the launcher, and makes it end if the launcher is killed.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// lockThread locks the thread that starts the processes, because the system ends them when this thread ends.
func lockThread() (unlock func()) {
	runtime.LockOSThread()
	return runtime.UnlockOSThread
}
