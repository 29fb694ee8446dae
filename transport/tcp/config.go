package tcp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/weir-ml/weir/schedule"
)

// Config says which rank an endpoint is, and where the job meets. Rank, Ranks and Address
// must be set, and Token outside of a single user's host.
type Config struct {
	Rank, Ranks int
	// Address is where rank 0 is: unix:PATH or tcp:HOST:PORT.
	Address string
	// Listen is where this rank listens for the others, in the form of Address. "" is
	// Address on rank 0, and on others a path in its folder or any port of the interface by
	// which they reach rank 0. Advertise is what the others dial instead, where an address
	// is translated on the way.
	Listen, Advertise string
	// Network carries the bytes where that is not the system's sockets. The addresses are then
	// its own, and Listen may be "" on every rank but 0.
	Network Network
	// Token is a secret of the job. A connection without it is closed.
	Token string
	// TLS authenticates both sides of every connection: see LoadTLS. Off loopback it must
	// be set unless Insecure is.
	TLS      *tls.Config
	Insecure bool
	// Facts are what must be equal on all ranks: model, plan, flags, version. Join compares
	// them and names the first that differs.
	Facts []Fact
	// Capacity is how many messages a link holds that are sent and not yet received: 0 is a
	// rendezvous, schedule.Unlimited no bound.
	Capacity int
	// Meeting is how long Join waits for all ranks; 0 is a minute.
	Meeting time.Duration
	// Silence is how long nothing may come from a rank before it is lost; 0 is 10 seconds,
	// at least 10 milliseconds, and negative is for ever.
	Silence time.Duration
	// Stall is how long a rank may wait for others while every rank stays in the same action,
	// before the step ends with a *transport.StallError. Rank 0 finds that out from the
	// heartbeats. 0 is five minutes, at least 10 milliseconds, and negative is for ever.
	Stall time.Duration
}

// Network carries the bytes of a job in place of the system's sockets: transport/mpi has one.
// A connection keeps to the contract of net.Conn, with deadlines, and Close ends the calls under
// way; when a Write returns, nobody reads what it was given. If nobody listens, Dial may return
// a connection that ends at once.
type Network interface {
	// Listen listens at an address, or at any where that is "". Others dial the Network and the
	// String of its Addr, with a colon between them.
	Listen(address string) (net.Listener, error)
	Dial(ctx context.Context, address string) (net.Conn, error)
}

// Fact is something that must be equal on all ranks.
type Fact struct {
	Name, Value string
	// Shown stands for Value in errors, such as the name and the size of a file whose Value is a
	// hash. It may differ between ranks, and "" is Value.
	Shown string `json:",omitempty"`
}

const (
	defaultMeeting = time.Minute
	defaultSilence = 10 * time.Second
	defaultStall   = 5 * time.Minute
	leastSilence   = 10 * time.Millisecond
	never          = 100 * 365 * 24 * time.Hour
	mostRanks      = 1 << 16
	mostPath       = 107 // bytes, where it is longest
)

// Validate reports every fault.
func (c *Config) Validate() error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf("tcp: "+format, args...)) }
	if c.Ranks < 1 || c.Ranks > mostRanks {
		fault("%d ranks: give 1 to %d", c.Ranks, mostRanks)
	} else if c.Rank < 0 || c.Rank >= c.Ranks {
		fault("rank %d of %d: ranks count from 0", c.Rank, c.Ranks)
	}
	if c.Capacity < schedule.Unlimited {
		fault("a link of capacity %d", c.Capacity)
	}
	if c.Silence > 0 && c.Silence < leastSilence {
		fault("a silence of %v: give %v or more", c.Silence, leastSilence)
	}
	if c.Stall > 0 && c.Stall < leastSilence {
		fault("a stall of %v: give %v or more", c.Stall, leastSilence)
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
		} else if network == "unix" && len(host) > mostPath {
			fault("address %q: the path has %d bytes, and that of a socket at most %d: give a shorter one", address, len(host), mostPath)
		} else if network == "tcp" && c.TLS == nil && !c.Insecure && !loopback(host) {
			fault("%s is not on loopback: give TLS, which authenticates both sides, or say that the network is trusted (Insecure)", address)
		}
	}
	return errors.Join(faults...)
}

// complete returns the configuration with its defaults.
func (c Config) complete() Config {
	if c.Meeting == 0 {
		c.Meeting = defaultMeeting
	}
	switch {
	case c.Silence == 0:
		c.Silence = defaultSilence
	case c.Silence < 0:
		c.Silence = never
	}
	switch {
	case c.Stall == 0:
		c.Stall = defaultStall
	case c.Stall < 0:
		c.Stall = never
	}
	return c
}

// split returns the network of an address, and the rest.
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

// loopback reports whether a host and port are reached from this host alone.
func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
