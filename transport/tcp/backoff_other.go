//go:build !linux

package tcp

import "net"

// limitBackoff does nothing on this system.
func (c *Config) limitBackoff(net.Conn) {}
