package tcp

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/weir-ml/weir/schedule"
)

// Config identifies an endpoint's rank and the address of its job. Rank, Ranks and Address must be
// set, and Token if the host has several users.
type Config struct {
	Rank, Ranks int
	// Pipeline is the number of ranks per pipeline if the job has several replicas of the pipeline.
	// Ranks are then numbered replica by replica, and the error for a lost rank also names its
	// replica.
	Pipeline int
	// Address is the address of rank 0: unix:PATH or tcp:HOST:PORT.
	Address string
	// Listen is the address at which this rank listens for the others, in the form of Address. On
	// rank 0 "" means Address; on other ranks it means a path in the same folder, or any port on the
	// interface that reaches rank 0. Advertise is the address that the other ranks dial instead, if
	// the network translates addresses.
	Listen, Advertise string
	// Network replaces the system's sockets. All addresses are then addresses of the Network, and
	// Listen may be "" on every rank except 0.
	Network Network
	// Token is the job's secret. Ranks close any connection that does not send it.
	Token string
	// TLS authenticates both sides of every connection: see LoadTLS. It is required for addresses
	// other than loopback, unless Insecure is set.
	TLS      *tls.Config
	Insecure bool
	// Facts are values that must be equal on all ranks, such as the model, plan, flags and version.
	// Join compares them and names the first difference.
	Facts []Fact
	// Sums adds a checksum to every message, to every range of exposed memory and to every exchange. The sender
	// computes it from the bytes that it reads, and the receiver from the bytes that it has written; a difference
	// ends the step with an error that wraps transport.ErrSum. All ranks must use the same setting.
	Sums bool
	// Capacity is the number of messages that a link can hold between send and receipt: 0 means a
	// rendezvous, and schedule.Unlimited means no limit.
	Capacity int
	// Meeting is how long Join waits for all ranks; 0 means one minute.
	Meeting time.Duration
	// Silence is the time after which a rank that sends nothing is considered lost. It is at least 10
	// milliseconds, 0 for 10 seconds, or negative for no limit.
	Silence time.Duration
	// Stall is the time after which a step ends with a *transport.StallError, if a rank waits for
	// others and no rank moves on to another action. Rank 0 detects this from the heartbeats. It is
	// at least 10 milliseconds, 0 for five minutes, or negative for no limit.
	Stall time.Duration
}

// Network carries a job's bytes in place of the system's sockets; package transport/mpi implements
// one. Connections follow the contract of net.Conn, including deadlines, and Close ends calls in
// progress. After a Write has returned, the Network no longer reads its bytes. If nothing listens at
// an address, Dial may return a connection that ends immediately.
type Network interface {
	// Listen listens at an address, or at any free address if it is "". Other ranks dial the network
	// name and string form of the listener's Addr, joined by a colon.
	Listen(address string) (net.Listener, error)
	Dial(ctx context.Context, address string) (net.Conn, error)
}

// Fact is a value that must be equal on all ranks.
type Fact struct {
	Name, Value string
	// Shown, unless empty, replaces Value in errors. For example, it is a file's name and size if
	// Value is the file's hash. It may differ between ranks.
	Shown string `json:",omitempty"`
}

const (
	defaultMeeting = time.Minute
	defaultSilence = 10 * time.Second
	defaultStall   = 5 * time.Minute
	minSilence     = 10 * time.Millisecond
	unlimited      = 100 * 365 * 24 * time.Hour
	maxRanks       = 1 << 16
	maxPath        = 107 // the longest socket path on Linux, in bytes; other systems allow fewer
)

// Validate reports every fault of the configuration.
func (c *Config) Validate() error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf("tcp: "+format, args...)) }
	if c.Ranks < 1 || c.Ranks > maxRanks {
		fault("%d ranks: give 1 to %d", c.Ranks, maxRanks)
	} else if c.Rank < 0 || c.Rank >= c.Ranks {
		fault("rank %d of %d: ranks are numbered from 0", c.Rank, c.Ranks)
	}
	if c.Pipeline < 0 || c.Pipeline > 0 && c.Ranks%c.Pipeline != 0 {
		fault("a pipeline of %d ranks in a job of %d: give every replica the same number of ranks", c.Pipeline, c.Ranks)
	}
	if c.Capacity < schedule.Unlimited {
		fault("a link of capacity %d", c.Capacity)
	}
	if c.Silence > 0 && c.Silence < minSilence {
		fault("a silence of %v: give %v or more", c.Silence, minSilence)
	}
	if c.Stall > 0 && c.Stall < minSilence {
		fault("a stall of %v: give %v or more", c.Stall, minSilence)
	}
	if c.Network != nil {
		return errors.Join(faults...)
	}
	for _, address := range []string{c.Address, c.Listen, c.Advertise} {
		if address == "" && c.Address != "" {
			continue
		}
		network, host, err := split(address)
		if err != nil {
			faults = append(faults, err)
		} else if network == "unix" && len(host) > maxPath {
			fault("address %q: the path has %d bytes, but the path of a socket has at most %d: give a shorter path", address, len(host), maxPath)
		} else if network == "tcp" && c.TLS == nil && !c.Insecure && !loopback(host) {
			fault("%s is not on loopback: give TLS, which authenticates both sides, or set Insecure if the network is trusted", address)
		}
	}
	return errors.Join(faults...)
}

// complete returns the configuration with defaults filled in for unset fields.
func (c Config) complete() Config {
	timeout := func(d, standard time.Duration) time.Duration {
		if d < 0 {
			return unlimited
		}
		return cmp.Or(d, standard)
	}
	c.Meeting = cmp.Or(c.Meeting, defaultMeeting)
	if c.Sums {
		c.Facts = append(slices.Clone(c.Facts), Fact{Name: "checksums", Value: "on"})
	}
	c.Silence, c.Stall = timeout(c.Silence, defaultSilence), timeout(c.Stall, defaultStall)
	return c
}

// split splits an address into its network and the rest.
func split(address string) (network, rest string, err error) {
	network, rest, _ = strings.Cut(address, ":")
	switch {
	case network == "unix" && rest != "":
		return network, rest, nil
	case network == "tcp":
		if _, _, err := net.SplitHostPort(rest); err != nil {
			return "", "", fmt.Errorf("tcp: address %q: %w", address, err)
		}
		return network, rest, nil
	}
	return "", "", fmt.Errorf("tcp: address %q: give unix:PATH or tcp:HOST:PORT", address)
}

// loopback reports whether an address, a host and port, can be reached only from this host.
func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
