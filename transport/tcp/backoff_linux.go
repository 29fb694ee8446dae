package tcp

import (
	"strings"
	"syscall"
	"time"
)

// tcpRTOMaxMS is TCP_RTO_MAX_MS of linux/tcp.h, since Linux 6.15.
const tcpRTOMaxMS = 44

// limitBackoff makes the system repeat unconfirmed bytes at least ten times per Silence, or once a
// second. By default it waits twice as long after every attempt, so that after an outage of seven
// seconds it would try again only in the thirteenth. It changes nothing on older systems.
func (c *Config) limitBackoff(network, _ string, raw syscall.RawConn) error {
	if !strings.HasPrefix(network, "tcp") {
		return nil
	}
	limit := min(max(c.Silence/beats, time.Second), 2*time.Minute) // what the system accepts
	return raw.Control(func(fd uintptr) {
		_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpRTOMaxMS, int(limit.Milliseconds())) // not on older systems
	})
}
