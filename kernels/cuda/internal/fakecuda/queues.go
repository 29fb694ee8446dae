package fakecuda

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/weir-ml/weir/kernels/cuda/driver"
	"github.com/weir-ml/weir/kernels/cuda/internal/ptx"
)

// work is a piece of queued work.
type work struct {
	call  string
	after *work // work of another stream to wait for, or nil
	run   func() error
	done  bool
}

// stream is a queue of work.
type stream struct {
	of       *Driver
	queue    []*work
	deferred []deferred // by deferred piece of work
}

// queued returns the number of pieces of work that have not run.
func (d *Driver) queued() (n int) {
	for _, s := range d.streams {
		if s != nil {
			n += len(s.queue)
		}
	}
	return n
}

// stream returns a stream by its number.
func (d *Driver) stream(call string, s driver.Stream) (*stream, error) {
	if s == 0 || int(s) > len(d.streams) || d.streams[s-1] == nil {
		return nil, refuse(call, driver.ErrInvalid, "no stream %d", s)
	}
	if d.captured != nil && d.captured.stream == s {
		d.captured.invalid = true // not only this call: the capture is no longer valid
		return nil, refuse(call, driver.ErrInvalid, "stream %d is being captured", s)
	}
	return d.streams[s-1], nil
}

// add queues work, and runs a random amount of queued work.
func (d *Driver) add(s driver.Stream, w *work) error {
	q, err := d.stream(w.call, s)
	if err != nil {
		return err
	}
	q.queue = append(q.queue, w)
	for d.rng.IntN(3) == 0 && d.runNext() {
	}
	return nil
}

// stall is the average number of pieces of work until another stream stalls.
const stall = 24

// runNext runs one of the pieces of work that are ready, on any device of the machine, and reports
// whether there was one.
func (m *machine) runNext() bool {
	var ready []*stream
	for _, d := range m.drivers {
		for _, s := range d.streams {
			if s != nil && len(s.queue) > 0 && (s.queue[0].after == nil || s.queue[0].after.done) {
				ready = append(ready, s)
			}
		}
	}
	if len(ready) == 0 {
		return false
	}
	if m.rng.IntN(stall) == 0 {
		m.stalled = ready[m.rng.IntN(len(ready))]
	}
	if i := slices.Index(ready, m.stalled); i >= 0 && len(ready) > 1 {
		ready = slices.Delete(ready, i, i+1)
	}
	s := ready[m.rng.IntN(len(ready))]
	w, d := s.queue[0], s.of
	s.queue[0], s.queue = nil, s.queue[1:]
	if w.run != nil && d.lost == nil {
		if err := w.run(); err != nil {
			d.lose(w.call, "%v", err)
		}
	}
	w.done, w.run, w.after = true, nil, nil
	return true
}

// drain runs queued work until the condition holds or no work is ready.
func (d *Driver) drain(until func() bool) error {
	for !until() && d.runNext() {
	}
	return d.lost
}

// NewStream creates a stream.
func (d *Driver) NewStream() (s driver.Stream, err error) {
	err = d.call("NewStream", func() error {
		d.streams = append(d.streams, &stream{of: d})
		s = driver.Stream(len(d.streams))
		return nil
	})
	return s, err
}

// FreeStream destroys a stream after its work is done.
func (d *Driver) FreeStream(s driver.Stream) error {
	return d.call("FreeStream", func() error {
		q, err := d.stream("FreeStream", s)
		if err == nil {
			err = d.drain(func() bool { return len(q.queue) == 0 })
			d.streams[s-1] = nil
		}
		return err
	})
}

// Sync runs the queued work of a stream, and perhaps work of other streams.
func (d *Driver) Sync(s driver.Stream) error {
	return d.call("Sync", func() error {
		q, err := d.stream("Sync", s)
		if err != nil {
			return err
		}
		q.deferred = nil // a step that ended before its work was queued
		return d.drain(func() bool { return len(q.queue) == 0 })
	})
}

// NewEvent creates an event.
func (d *Driver) NewEvent() (e driver.Event, err error) {
	err = d.call("NewEvent", func() error {
		d.events = append(d.events, &work{done: true})
		e = driver.Event(len(d.events))
		return nil
	})
	return e, err
}

// FreeEvent destroys an event.
func (d *Driver) FreeEvent(e driver.Event) error {
	return d.call("FreeEvent", func() error {
		_, err := d.event("FreeEvent", e)
		if err == nil {
			d.events[e-1] = nil
		}
		return err
	})
}

func (d *Driver) event(call string, e driver.Event) (*work, error) {
	if e == 0 || int(e) > len(d.events) || d.events[e-1] == nil {
		return nil, refuse(call, driver.ErrInvalid, "no event %d", e)
	}
	return d.events[e-1], nil
}

// Record marks the work that a stream has queued so far.
func (d *Driver) Record(e driver.Event, s driver.Stream) error {
	return d.call("Record", func() error {
		if _, err := d.event("Record", e); err != nil {
			return err
		}
		d.events[e-1] = &work{call: "Record"}
		return d.add(s, d.events[e-1])
	})
}

// Wait delays work that is queued on a stream from now on until the event's work is done.
func (d *Driver) Wait(s driver.Stream, e driver.Event) error {
	return d.call("Wait", func() error {
		w, err := d.event("Wait", e)
		if err != nil {
			return err
		}
		return d.add(s, &work{call: "Wait", after: w})
	})
}

// Done runs work until the event's work is done.
func (d *Driver) Done(e driver.Event) error {
	return d.call("Done", func() error {
		w, err := d.event("Done", e)
		if err != nil {
			return err
		}
		return d.drain(func() bool { return w.done })
	})
}

// touch queues work on the buffers at the given addresses. The work uses the given number of bytes
// of each buffer; 0 if the work checks its accesses itself.
func (d *Driver) touch(s driver.Stream, call string, at []driver.Addr, bytes int64, run func(regions []*ptx.Region) error) error {
	q, err := d.stream(call, s)
	if err != nil {
		return err
	}
	all, err := d.buffers(q, call, at)
	if err != nil {
		return err
	}
	var regions, fresh []*ptx.Region
	for i, t := range all {
		if off := int64(uint64(at[i]) - t.Base); off+bytes > int64(len(t.Data)) {
			return refuse(call, driver.ErrInvalid, "%d bytes from byte %d of a buffer of %d", bytes, off, len(t.Data))
		}
		if t.fresh {
			fresh = append(fresh, t.Region)
		}
		regions = append(regions, t.Region)
	}
	return d.add(s, &work{call: call, run: func() error {
		for _, r := range fresh {
			clear(r.Written)
		}
		return run(regions)
	}})
}

// part returns the n bytes of a region from an address on, and their marks in Region.Written.
func part(r *ptx.Region, at driver.Addr, n int64) (data, written []byte) {
	off := int64(uint64(at) - r.Base)
	return r.Data[off : off+n], r.Written[off : off+n]
}

var errUnwritten = errors.New("bytes that were not written since the buffer was allocated")

func set(written []byte) {
	for i := range written {
		written[i] = 1
	}
}

// CopyIn queues a copy to the device.
func (d *Driver) CopyIn(s driver.Stream, to driver.Addr, from []byte) error {
	return d.call("CopyIn", func() error {
		if !d.locked(from) {
			return refuse("CopyIn", driver.ErrInvalid, "from memory that is not from HostAlloc")
		}
		n := int64(len(from))
		return d.touch(s, "CopyIn", []driver.Addr{to}, n, func(r []*ptx.Region) error {
			data, written := part(r[0], to, n)
			copy(data, from)
			set(written)
			return nil
		})
	})
}

// CopyOut queues a copy from the device.
func (d *Driver) CopyOut(s driver.Stream, to []byte, from driver.Addr) error {
	return d.call("CopyOut", func() error {
		if !d.locked(to) {
			return refuse("CopyOut", driver.ErrInvalid, "to memory that is not from HostAlloc")
		}
		n := int64(len(to))
		return d.touch(s, "CopyOut", []driver.Addr{from}, n, func(r []*ptx.Region) error {
			data, written := part(r[0], from, n)
			if bytes.IndexByte(written, 0) >= 0 {
				return fmt.Errorf("a copy of %d bytes reads %w", n, errUnwritten)
			}
			copy(to, data)
			return nil
		})
	})
}

// Copy queues a copy within the device.
func (d *Driver) Copy(s driver.Stream, to, from driver.Addr, n int64) error {
	return d.call("Copy", func() error {
		return d.enqueue(s, func() error {
			return d.touch(s, "Copy", []driver.Addr{to, from}, n, func(r []*ptx.Region) error {
				return move(r[0], to, r[1], from, n)
			})
		})
	})
}

// Peer reports whether the machine lets the device copy from another one.
func (d *Driver) Peer(from driver.Driver) (allowed bool, err error) {
	err = d.call("Peer", func() error {
		src, fake := from.(*Driver)
		if allowed = fake && src.machine == d.machine && slices.Contains(d.peers, [2]int{d.number, src.number}); allowed {
			d.reaches[src] = true
		}
		return nil
	})
	return allowed, err
}

// CopyPeer queues a copy from another device.
func (d *Driver) CopyPeer(s driver.Stream, to driver.Addr, from driver.Driver, at driver.Addr, n int64) error {
	return d.call("CopyPeer", func() error {
		if !d.reaches[from] {
			return refuse("CopyPeer", driver.ErrInvalid, "from a device that Peer has not allowed")
		}
		src, fresh, err := from.(*Driver).region("CopyPeer", at)
		if err == nil && fresh {
			err = refuse("CopyPeer", driver.ErrInvalid, "from a buffer that was not written")
		}
		if err != nil {
			return err
		}
		return d.touch(s, "CopyPeer", []driver.Addr{to}, n, func(r []*ptx.Region) error {
			return move(r[0], to, src, at, n)
		})
	})
}

// move copies bytes, all of which must have been written.
func move(dst *ptx.Region, to driver.Addr, src *ptx.Region, from driver.Addr, n int64) error {
	data, written := part(dst, to, n)
	source, known := part(src, from, n)
	if bytes.IndexByte(known, 0) >= 0 {
		return fmt.Errorf("a copy of %d bytes reads %w", n, errUnwritten)
	}
	copy(data, source)
	set(written)
	return nil
}

// Fill queues a fill.
func (d *Driver) Fill(s driver.Stream, to driver.Addr, value byte, n int64) error {
	return d.call("Fill", func() error {
		return d.enqueue(s, func() error {
			return d.touch(s, "Fill", []driver.Addr{to}, n, func(r []*ptx.Region) error {
				data, written := part(r[0], to, n)
				for i := range data {
					data[i] = value
				}
				set(written)
				return nil
			})
		})
	})
}

// parsed holds every module that the process has loaded, for all drivers.
var parsed sync.Map

func parse(text string) (*ptx.Module, error) {
	if m, ok := parsed.Load(text); ok {
		return m.(*ptx.Module), nil
	}
	m, err := ptx.Parse([]byte(text))
	if err == nil {
		parsed.Store(text, m)
	}
	return m, err
}

// Load parses PTX. The log is the error of the parser.
func (d *Driver) Load(text string) (m driver.Module, err error) {
	err = d.call("Load", func() error {
		module, err := parse(text)
		if err != nil {
			return &driver.Error{Call: "Load", Text: "the text cannot be parsed", Log: err.Error(), Kind: driver.ErrRefused}
		}
		d.modules = append(d.modules, module)
		m = driver.Module(len(d.modules))
		return nil
	})
	return m, err
}

// Unload does nothing: handles of the module stay valid.
func (d *Driver) Unload(m driver.Module) error {
	return d.call("Unload", func() error { return nil })
}

// Function returns a kernel.
func (d *Driver) Function(m driver.Module, name string) (f driver.Function, err error) {
	err = d.call("Function", func() error {
		if m == 0 || int(m) > len(d.modules) || d.modules[m-1].Kernel(name) == nil {
			return refuse("Function", driver.ErrInvalid, "module %d has no kernel %s", m, name)
		}
		d.kernels = append(d.kernels, d.modules[m-1].Kernel(name))
		f = driver.Function(len(d.kernels))
		return nil
	})
	return f, err
}

// launchMemory is the memory that a launch may access: the buffers whose addresses are its arguments.
type launchMemory []*ptx.Region

// Region returns the buffer that contains an address.
func (g launchMemory) Region(address uint64) (*ptx.Region, error) {
	for _, r := range g {
		if address-r.Base < uint64(len(r.Data)) {
			return r, nil
		}
	}
	return nil, errors.New("in none of the buffers among the arguments of the kernel")
}

// Launch queues a kernel.
func (d *Driver) Launch(s driver.Stream, f driver.Function, l driver.Launch) error {
	return d.call("Launch", func() error {
		if f == 0 || int(f) > len(d.kernels) {
			return refuse("Launch", driver.ErrInvalid, "no function %d", f)
		}
		k := d.kernels[f-1]
		params, err := k.Pack(l.Args)
		if err != nil {
			return refuse("Launch", driver.ErrInvalid, "%v", err)
		}
		var at []driver.Addr
		for i, a := range l.Args {
			if k.Params[i].Size == 8 && d.find(driver.Addr(a)) != nil {
				at = append(at, driver.Addr(a))
			}
		}
		grid, block := dimensions(l.Grid), dimensions(l.Block)
		return d.enqueue(s, func() error {
			return d.touch(s, "Launch", at, 0, func(regions []*ptx.Region) error {
				d.launched++
				return k.Launch(launchMemory(regions), grid, block, int(l.Shared), params, d.rng.Uint64())
			})
		})
	})
}

func dimensions(d [3]uint32) [3]int { return [3]int{int(d[0]), int(d[1]), int(d[2])} }
