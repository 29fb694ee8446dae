package tcp

import (
	"net"
	"syscall"
	"time"
)

// tcpRTOMaxMS is TCP_RTO_MAX_MS of linux/tcp.h, since Linux 6.15.
const tcpRTOMaxMS = 44

// limitBackoff limits the time between the system's retransmissions of unacknowledged bytes to a tenth of
// Silence, but to no less than a second. By default this time doubles after every attempt, so after an outage
// of seven seconds the next attempt could come as late as the thirteenth second. Older systems have no such
// limit. The limit must not be set while a connection is being made, because it would end the attempts before
// Silence has passed.
func (c *Config) limitBackoff(conn net.Conn) {
	limit := min(max(c.Silence/beats, time.Second), 2*time.Minute) // what the system accepts
	if socket, is := conn.(*net.TCPConn); is {
		if raw, err := socket.SyscallConn(); err == nil {
			_ = raw.Control(func(fd uintptr) {
				_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpRTOMaxMS, int(limit.Milliseconds())) // not on older systems
			})
		}
	}
}
