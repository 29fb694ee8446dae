package fakecuda

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"sync"

	"github.com/weir-ml/weir/kernels/cuda/driver"
	"github.com/weir-ml/weir/kernels/cuda/internal/ptx"
	"github.com/weir-ml/weir/memory"
)

// machine is the state that the devices of one machine share. Their queued work runs in one common
// order.
type machine struct {
	mu      sync.Mutex
	rng     *rand.Rand
	drivers []*Driver
	stalled *stream // runs only if no other can
	events  []*work // by Event-1: the last record
	peers   [][2]int
}

// Driver is the driver of a simulated device.
type Driver struct {
	*machine
	number   int                          // of the device in the machine
	live     func() iter.Seq[memory.Info] // nil if no arena is followed
	facts    driver.Properties
	used     int64                  // bytes that are mapped
	reaches  map[driver.Driver]bool // devices that Peer has allowed
	calls    map[string]int
	planted  map[string]map[int]error
	lost     error
	closed   bool
	ranges   []*area
	seen     map[uint64]bool // serials of the buffers that work has touched
	host     [][]byte
	streams  []*stream // by Stream-1; nil after FreeStream
	modules  []*ptx.Module
	kernels  []*ptx.Kernel    // by Function-1
	graphs   [][]func() error // by Graph-1: functions that queue its pieces; nil after FreeGraph
	captured *capture         // the graph that is being captured, or nil
	launched int
}

var _ driver.Driver = (*Driver)(nil)

// New returns a driver of a device with total bytes of memory, in pages of page bytes. seed decides
// the order of queued work.
func New(seed uint64, total, page int64) *Driver { return NewMachine(seed, 1, total, page)[0] }

// NewMachine returns the drivers of n such devices of one machine. The first device of each pair of
// peers, numbered from 0, may copy from the second.
func NewMachine(seed uint64, n int, total, page int64, peers ...[2]int) []*Driver {
	m := &machine{rng: rand.New(rand.NewPCG(seed, 0)), peers: peers}
	for i := range n {
		m.drivers = append(m.drivers, &Driver{
			machine: m, number: i, reaches: map[driver.Driver]bool{},
			facts: driver.Properties{Name: "fake", Major: 8, Processors: 1, SharedPerBlock: 48 << 10, Total: total, Page: page},
			calls: map[string]int{}, planted: map[string]map[int]error{}, seen: map[uint64]bool{},
		})
	}
	return m.drivers
}

// Follow limits work on the first range to the live buffers of its arena. Without Follow each run
// of mapped pages is one buffer. The driver calls live while it queues work.
func (d *Driver) Follow(live func() iter.Seq[memory.Info]) { d.live = live }

// Calls returns how often the named calls were made.
func (d *Driver) Calls(names ...string) (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, name := range names {
		n += d.calls[name]
	}
	return n
}

// Launches returns the number of kernels that have run.
func (d *Driver) Launches() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.launched
}

// Modules returns the loaded modules, for the coverage of their kernels. All drivers of the process
// share the coverage.
func (d *Driver) Modules() []*ptx.Module { return d.modules }

// Plant makes the nth call of the given name from now on fail; 1 is the next call. kind is one of the errors
// of package driver; with driver.ErrLost, the device is lost.
func (d *Driver) Plant(call string, nth int, kind error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.planted[call] == nil {
		d.planted[call] = map[int]error{}
	}
	d.planted[call][d.calls[call]+nth] = kind
}

// refuse returns the error of a call.
func refuse(call string, kind error, format string, args ...any) error {
	return &driver.Error{Call: call, Text: fmt.Sprintf(format, args...), Kind: kind}
}

// call counts a call, and runs it with mu held unless the call is refused.
func (d *Driver) call(name string, run func() error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls[name]++
	kind := d.planted[name][d.calls[name]]
	switch {
	case d.closed:
		return refuse(name, driver.ErrInvalid, "the driver is closed")
	case d.lost != nil:
		return d.lost
	case kind == driver.ErrLost:
		d.lose(name, "planted")
		return d.lost
	case kind != nil:
		return refuse(name, kind, "planted")
	}
	return run()
}

// lose makes all later calls fail with ErrLost.
func (d *Driver) lose(call, format string, args ...any) {
	if d.lost == nil {
		d.lost = refuse(call, driver.ErrLost, format, args...)
	}
}

// Properties returns the properties of the simulated device.
func (d *Driver) Properties() driver.Properties { return d.facts }

// MemInfo returns the number of bytes that are not mapped, and the total number of bytes.
func (d *Driver) MemInfo() (free, total int64, err error) {
	err = d.call("MemInfo", func() error {
		free, total = d.facts.Total-d.used, d.facts.Total
		return nil
	})
	return free, total, err
}

// Close closes the driver. Queued work does not run. It returns an error if ranges, host memory or
// graphs have not been released.
func (d *Driver) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls["Close"]++
	if d.closed {
		return nil
	}
	d.closed = true
	var left []string
	note := func(n int, what string) {
		if n > 0 {
			left = append(left, fmt.Sprintf("%d %s", n, what))
		}
	}
	note(len(d.ranges), "ranges")
	note(len(d.host), "buffers of the host")
	graphs := 0
	for _, g := range d.graphs {
		if g != nil {
			graphs++
		}
	}
	note(graphs, "graphs")
	if len(left) > 0 && d.lost == nil {
		return refuse("Close", driver.ErrInvalid, "the owner has not released %v", left)
	}
	return nil
}
