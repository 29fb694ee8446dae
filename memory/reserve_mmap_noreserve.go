//go:build linux || darwin

package memory

import "syscall"

const noReserve = syscall.MAP_NORESERVE
