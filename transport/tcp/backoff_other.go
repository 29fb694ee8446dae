//go:build !linux

package tcp

import "syscall"

// limitBackoff does nothing on this system.
func (c *Config) limitBackoff(_, _ string, _ syscall.RawConn) error { return nil }
