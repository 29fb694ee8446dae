package tcp

import (
	"net"
	"syscall"
	"time"
)

// tcpRTOMaxMS is TCP_RTO_MAX_MS of linux/tcp.h, since Linux 6.15.
const tcpRTOMaxMS = 44

// limitBackoff makes the system repeat unconfirmed bytes at least ten times per Silence, or once a
// second. By default it waits twice as long after every attempt, so that after an outage of seven
// seconds it would try again only in the thirteenth. It changes nothing on older systems. While a
// connection is being made, the limit would end the attempts before Silence has passed.
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
