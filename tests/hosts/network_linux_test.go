package hosts

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// network is a number of hosts and the router between them.
type network struct {
	names []string   // of the namespaces, by host
	tuns  []*os.File // the router's ends of the hosts' devices
	links [][]*link  // from one host to another
	all   sync.WaitGroup
}

// link carries packets in one direction between two hosts.
type link struct {
	mu     sync.Mutex
	as     conditions
	random *rand.Rand
	free   time.Time // when everything that was sent so far has left the sender
	queue  chan packet
	bytes  atomic.Int64 // number of bytes that have arrived
	lost   atomic.Int64 // number of packets that have not
}

// conditions describes a link. With the zero value, the link delivers everything immediately.
type conditions struct {
	latency time.Duration
	loss    float64 // the probability that a packet is lost
	rate    int     // bits per second, 0 for no limit
	cut     bool    // no packet arrives
}

type packet struct {
	due   time.Time
	bytes []byte
}

const (
	maxPacket  = 1500
	maxQueue   = 4096
	maxBacklog = 500 * time.Millisecond // a sender drops packets that would wait longer than this
)

func newLink(as conditions) *link {
	return &link{as: as, random: rand.New(rand.NewPCG(1, 2)), queue: make(chan packet, maxQueue)}
}

// networks numbers the networks of this process.
var networks atomic.Int64

// address returns the address of a host.
func address(host int) string { return fmt.Sprintf("10.77.0.%d", host+1) }

// newNetwork makes hosts that are named host0, host1 and so on. All links have the conditions.
func newNetwork(t *testing.T, hosts int, as conditions) *network {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("NO HOSTS WERE TESTED: only root can make network namespaces")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("NO HOSTS WERE TESTED: install iproute2: ", err)
	}
	n := &network{}
	t.Cleanup(n.close)
	var file bytes.Buffer
	fmt.Fprintln(&file, "127.0.0.1 localhost")
	for host := range hosts {
		fmt.Fprintf(&file, "%s host%d\n", address(host), host)
	}
	id := networks.Add(1)
	for host := range hosts {
		tun, device, err := openTUN()
		if err != nil {
			t.Skip("NO HOSTS WERE TESTED: a TUN device: ", err)
		}
		n.tuns = append(n.tuns, tun)
		name := fmt.Sprintf("weir%d-%d-%d", os.Getpid(), id, host)
		n.names = append(n.names, name)
		ip(t, "netns", "add", name)
		ip(t, "link", "set", device, "netns", name)
		ip(t, "-n", name, "addr", "add", address(host)+"/24", "dev", device)
		ip(t, "-n", name, "link", "set", device, "mtu", fmt.Sprint(maxPacket), "up")
		ip(t, "-n", name, "link", "set", "lo", "up")
		require.NoError(t, os.MkdirAll(etc(name), 0o755)) // ip netns exec shows its files as those of /etc
		require.NoError(t, os.WriteFile(filepath.Join(etc(name), "hosts"), file.Bytes(), 0o644))
	}
	for from := range hosts {
		n.links = append(n.links, nil)
		for to := range hosts {
			l := newLink(as)
			n.links[from] = append(n.links[from], l)
			n.all.Go(func() { l.deliver(n.tuns[to]) })
		}
	}
	for from := range hosts {
		n.all.Go(func() { n.route(from) })
	}
	return n
}

func etc(name string) string { return filepath.Join("/etc/netns", name) }

// ip runs the command ip.
func ip(t *testing.T, args ...string) {
	t.Helper()
	out, err := exec.Command("ip", args...).CombinedOutput()
	require.NoError(t, err, "ip %v: %s", args, out)
}

// openTUN makes a device that carries IP packets, and returns this process's end of it and its name.
func openTUN() (*os.File, string, error) {
	fd, err := syscall.Open("/dev/net/tun", syscall.O_RDWR|syscall.O_CLOEXEC|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, "", fmt.Errorf("/dev/net/tun: %w", err)
	}
	var request struct {
		name  [syscall.IFNAMSIZ]byte
		flags uint16
		_     [22]byte
	}
	copy(request.name[:], "weir%d") // the kernel chooses the number
	request.flags = syscall.IFF_TUN | syscall.IFF_NO_PI
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), syscall.TUNSETIFF, uintptr(unsafe.Pointer(&request))); errno != 0 {
		_ = syscall.Close(fd)
		return nil, "", errno
	}
	name, _, _ := bytes.Cut(request.name[:], []byte{0})
	return os.NewFile(uintptr(fd), "/dev/net/tun"), string(name), nil
}

// close removes the hosts. Their processes must have ended.
func (n *network) close() {
	for _, tun := range n.tuns {
		_ = tun.Close() // ends its route
	}
	for _, name := range n.names {
		_ = exec.Command("ip", "netns", "del", name).Run()
		_ = os.RemoveAll(etc(name))
	}
	n.all.Wait()
}

// route passes the packets of a host to its links.
func (n *network) route(from int) {
	defer func() {
		for _, l := range n.links[from] {
			close(l.queue)
		}
	}()
	buffer := make([]byte, maxPacket)
	for {
		size, err := n.tuns[from].Read(buffer)
		if err != nil {
			return
		}
		const v4, least = 4, 20
		if size < least || buffer[0]>>4 != v4 {
			continue
		}
		if to := int(binary.BigEndian.Uint32(buffer[16:])) - (10<<24 | 77<<16 | 1); to >= 0 && to < len(n.tuns) {
			n.links[from][to].send(bytes.Clone(buffer[:size]))
		}
	}
}

// send accepts a packet or loses it.
func (l *link) send(b []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if l.free.Before(now) {
		l.free = now
	}
	if l.as.cut || l.random.Float64() < l.as.loss || l.free.Sub(now) > maxBacklog {
		l.lost.Add(1)
		return
	}
	if l.as.rate > 0 {
		l.free = l.free.Add(time.Duration(len(b)) * 8 * time.Second / time.Duration(l.as.rate))
	}
	select {
	case l.queue <- packet{l.free.Add(l.as.latency), b}:
	default:
		l.lost.Add(1)
	}
}

// deliver writes packets to the receiver's device when they are due. A cut also loses packets in flight.
func (l *link) deliver(to io.Writer) {
	for p := range l.queue {
		time.Sleep(time.Until(p.due))
		l.mu.Lock()
		cut := l.as.cut
		l.mu.Unlock()
		if cut {
			l.lost.Add(1)
			continue
		}
		_, _ = to.Write(p.bytes) // the host may be gone
		l.bytes.Add(int64(len(p.bytes)))
	}
}

// set changes the conditions of the links from one host to another.
func (n *network) set(from, to int, change func(*conditions)) {
	l := n.links[from][to]
	l.mu.Lock()
	defer l.mu.Unlock()
	change(&l.as)
}

// cut cuts or heals both directions between hosts; -1 means all hosts.
func (n *network) cut(a, b int, cut bool) {
	for from := range n.tuns {
		for to := range n.tuns {
			if (a < 0 || from == a) && (b < 0 || to == b) {
				n.cutOneWay(from, to, cut)
				n.cutOneWay(to, from, cut)
			}
		}
	}
}

// cutOneWay cuts or heals the link from one host to another.
func (n *network) cutOneWay(from, to int, cut bool) {
	n.set(from, to, func(c *conditions) { c.cut = cut })
}

// command returns a command that runs a program on a host. Its process becomes the program, so signals
// reach the program.
func (n *network) command(t *testing.T, host int, args ...string) *exec.Cmd {
	named := []string{"netns", "exec", n.names[host], "unshare", "--uts", "sh", "-c", `hostname "$0" && exec "$@"`, fmt.Sprint("host", host)}
	return exec.CommandContext(t.Context(), "ip", append(named, args...)...)
}
