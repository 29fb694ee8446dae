//go:build cuda

package libcuda

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"
	"gorgonia.org/cu"

	"github.com/weir-ml/weir/kernels/cuda/driver"
)

// Driver is a device of the system, with its primary context.
type Driver struct {
	device  cu.Device
	context cu.CUContext
	facts   driver.Properties
	library library
	where   location
	closed  bool

	mapping sync.Mutex            // guards the fields below
	mapped  map[driver.Addr]int64 // sizes of the mapped pages in bytes
	readers []access              // this device, and the devices that copy from it

	launching sync.Mutex // guards the fields below
	values    [maxArgs]uint64
	params    [maxArgs]unsafe.Pointer // addresses of values
}

// maxArgs is the maximum number of parameters of a kernel.
const maxArgs = 32

var (
	errArgs = errors.New("more than 32 parameters")
	errPeer = errors.New("from a device of another driver")
)

var _ driver.Driver = (*Driver)(nil)

// Open returns the driver of a device by its number. The error wraps driver.ErrNoDevice if no
// device has that number.
func Open(number int) (*Driver, error) {
	count, err := cu.NumDevices()
	if err != nil {
		return nil, failed("Open", err)
	}
	if number < 0 || number >= count {
		return nil, &driver.Error{Call: "Open", Text: fmt.Sprintf("the device number is %d, but there are %d devices, numbered from 0", number, count), Kind: driver.ErrNoDevice}
	}
	d := &Driver{where: location{kind: onDevice, id: int32(number)}, mapped: map[driver.Addr]int64{}}
	d.readers = []access{{where: d.where, flags: readWrite}}
	for i := range d.values {
		d.params[i] = unsafe.Pointer(&d.values[i])
	}
	if d.device, err = cu.GetDevice(number); err != nil {
		return nil, failed("Open", err)
	}
	if err := d.library.open(); err != nil {
		return nil, &driver.Error{Call: "Open", Text: err.Error(), Kind: driver.ErrNoDevice}
	}
	if d.context, err = d.device.RetainPrimaryCtx(); err != nil {
		return nil, failed("Open", err)
	}
	if err := d.read(); err != nil {
		_ = d.device.ReleasePrimaryCtx() // the first error is reported
		return nil, failed("Open", err)
	}
	return d, nil
}

// read sets the properties.
func (d *Driver) read() (err error) {
	f := &d.facts
	if f.Name, err = d.device.Name(); err != nil {
		return err
	}
	if f.Major, f.Minor, err = d.device.ComputeCapability(); err != nil {
		return err
	}
	if f.Processors, err = d.device.Attribute(cu.MultiprocessorCount); err != nil {
		return err
	}
	if f.SharedPerBlock, err = d.device.Attribute(cu.MaxSharedMemoryPerBlock); err != nil {
		return err
	}
	if f.Total, err = d.device.TotalMem(); err != nil {
		return err
	}
	return d.Current(func() error {
		f.Page, err = d.granularity()
		return err
	})
}

// Current runs call with the context current on its thread.
func (d *Driver) Current(call func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cu.SetCurrentContext(d.context); err != nil {
		return err
	}
	return call()
}

// do is Current, with the call's name in the error.
func (d *Driver) do(name string, call func() error) error { return failed(name, d.Current(call)) }

// kinds maps a CUresult to a kind of error. All others are ErrInvalid.
var kinds = map[int]error{
	2: driver.ErrOutOfMemory, 100: driver.ErrNoDevice, 101: driver.ErrNoDevice,
	200: driver.ErrRefused, 209: driver.ErrRefused, 218: driver.ErrRefused, 222: driver.ErrRefused,
	214: driver.ErrLost, 700: driver.ErrLost, 702: driver.ErrLost, 709: driver.ErrLost, 710: driver.ErrLost,
	714: driver.ErrLost, 715: driver.ErrLost, 716: driver.ErrLost, 717: driver.ErrLost, 718: driver.ErrLost,
	719: driver.ErrLost, 999: driver.ErrLost,
}

// failed wraps an error of cu or of the library. It returns nil for nil.
func failed(call string, err error) error {
	if err == nil {
		return nil
	}
	e := &driver.Error{Call: call, Text: err.Error(), Kind: driver.ErrInvalid}
	if v := reflect.ValueOf(err); v.Kind() == reflect.Int { // both are a CUresult
		e.Code = int(v.Int())
	}
	if kind, known := kinds[e.Code]; known {
		e.Kind = kind
	}
	return e
}

// Properties returns the properties of the device.
func (d *Driver) Properties() driver.Properties { return d.facts }

// MemInfo returns the free and the total memory of the device in bytes.
func (d *Driver) MemInfo() (free, total int64, err error) {
	err = d.do("MemInfo", func() error {
		free, total, err = cu.MemInfo()
		return err
	})
	return free, total, err
}

// number and handle convert a handle of cu, which is a struct of one C pointer, to a number and
// back.
func number[H cu.Stream | cu.Event | cu.Module | cu.Function](h H) uintptr {
	return *(*uintptr)(unsafe.Pointer(&h))
}

func handle[H cu.Stream | cu.Event | cu.Module | cu.Function, N ~uintptr](n N) H {
	return *(*H)(unsafe.Pointer(&n))
}

func stream(s driver.Stream) cu.Stream { return handle[cu.Stream](s) }

// CopyIn queues a copy to the device.
func (d *Driver) CopyIn(s driver.Stream, to driver.Addr, from []byte) error {
	return d.do("CopyIn", func() error {
		return cu.MemcpyHtoDAsync(cu.DevicePtr(to), unsafe.Pointer(unsafe.SliceData(from)), int64(len(from)), stream(s))
	})
}

// CopyOut queues a copy from the device.
func (d *Driver) CopyOut(s driver.Stream, to []byte, from driver.Addr) error {
	return d.do("CopyOut", func() error {
		return cu.MemcpyDtoHAsync(unsafe.Pointer(unsafe.SliceData(to)), cu.DevicePtr(from), int64(len(to)), stream(s))
	})
}

// Copy queues a copy within the device.
func (d *Driver) Copy(s driver.Stream, to, from driver.Addr, bytes int64) error {
	return d.do("Copy", func() error {
		return cu.MemcpyDtoDAsync(cu.DevicePtr(to), cu.DevicePtr(from), bytes, stream(s))
	})
}

// Peer reports whether the device can reach the memory of another one, and enables it.
func (d *Driver) Peer(from driver.Driver) (may bool, err error) {
	src, same := from.(*Driver)
	if !same {
		return false, nil
	}
	err = d.do("Peer", func() error {
		can, err := d.device.CanAccessPeer(src.device)
		if may = can != 0; err != nil || !may {
			return err
		}
		if err = src.context.EnablePeerAccess(0); err != nil && err != cu.PeerAccessAlreadyEnabled {
			return err
		}
		return src.grant(d.where)
	})
	return may && err == nil, err
}

// CopyPeer queues a copy from another device.
func (d *Driver) CopyPeer(s driver.Stream, to driver.Addr, from driver.Driver, at driver.Addr, bytes int64) error {
	src, same := from.(*Driver)
	return d.do("CopyPeer", func() error {
		if !same {
			return errPeer
		}
		return cu.MemcpyPeerAsync(cu.DevicePtr(to), d.context, cu.DevicePtr(at), src.context, bytes, stream(s))
	})
}

// Fill queues a fill.
func (d *Driver) Fill(s driver.Stream, to driver.Addr, value byte, bytes int64) error {
	return d.do("Fill", func() error { return cu.MemsetD8Async(cu.DevicePtr(to), value, bytes, stream(s)) })
}

// NewStream creates a stream that is not ordered with the default stream.
func (d *Driver) NewStream() (s driver.Stream, err error) {
	err = d.do("NewStream", func() error {
		made, err := cu.MakeStream(cu.NonBlocking)
		s = driver.Stream(number(made))
		return err
	})
	return s, err
}

// FreeStream destroys a stream.
func (d *Driver) FreeStream(s driver.Stream) error {
	h := stream(s)
	return d.do("FreeStream", h.Destroy)
}

// Sync waits for a stream.
func (d *Driver) Sync(s driver.Stream) error { return d.do("Sync", stream(s).Synchronize) }

// NewEvent creates an event without timing.
func (d *Driver) NewEvent() (e driver.Event, err error) {
	err = d.do("NewEvent", func() error {
		made, err := cu.MakeEvent(cu.DisableTiming)
		e = driver.Event(number(made))
		return err
	})
	return e, err
}

// FreeEvent destroys an event.
func (d *Driver) FreeEvent(e driver.Event) error {
	h := handle[cu.Event](e)
	return d.do("FreeEvent", func() error { return cu.DestroyEvent(&h) })
}

// Record marks the work queued on a stream.
func (d *Driver) Record(e driver.Event, s driver.Stream) error {
	return d.do("Record", func() error { return handle[cu.Event](e).Record(stream(s)) })
}

// Wait orders a stream after the marked work.
func (d *Driver) Wait(s driver.Stream, e driver.Event) error {
	return d.do("Wait", func() error { return stream(s).Wait(handle[cu.Event](e), 0) })
}

// Done waits for the marked work.
func (d *Driver) Done(e driver.Event) error { return d.do("Done", handle[cu.Event](e).Synchronize) }

// Load compiles PTX for the device. The compiler's output is the log of the error.
func (d *Driver) Load(ptx string) (m driver.Module, err error) {
	log := make([]byte, 64<<10)
	var pinned runtime.Pinner // cu passes the address as a number
	pinned.Pin(&log[0])
	defer pinned.Unpin()
	err = d.do("Load", func() error {
		made, err := cu.LoadDataEx(ptx, &cu.JITErrorLogBuffer{Buffer: log})
		m = driver.Module(number(made))
		return err
	})
	if e, ok := err.(*driver.Error); ok {
		log, _, _ = bytes.Cut(log, []byte{0})
		e.Log = string(bytes.TrimSpace(log))
	}
	return m, err
}

// Unload unloads a module.
func (d *Driver) Unload(m driver.Module) error {
	return d.do("Unload", handle[cu.Module](m).Unload)
}

// Function returns a kernel.
func (d *Driver) Function(m driver.Module, name string) (f driver.Function, err error) {
	err = d.do("Function", func() error {
		found, err := handle[cu.Module](m).Function(name)
		f = driver.Function(number(found))
		return err
	})
	return f, err
}

// Launch queues a kernel. cu copies the parameters.
func (d *Driver) Launch(s driver.Stream, f driver.Function, l driver.Launch) error {
	return d.do("Launch", func() error {
		if len(l.Args) > maxArgs {
			return errArgs
		}
		d.launching.Lock()
		defer d.launching.Unlock()
		copy(d.values[:], l.Args)
		return handle[cu.Function](f).Launch(int(l.Grid[0]), int(l.Grid[1]), int(l.Grid[2]),
			int(l.Block[0]), int(l.Block[1]), int(l.Block[2]), int(l.Shared), stream(s), d.params[:len(l.Args)])
	})
}

// Capture makes a graph. The capture is relaxed: calls of other goroutines on other streams are
// not affected.
func (d *Driver) Capture(s driver.Stream, queue func() error) (g driver.Graph, err error) {
	const relaxed = 2 // CU_STREAM_CAPTURE_MODE_RELAXED
	l := &d.library
	if err := d.do("Capture", func() error { return answer(purego.SyscallN(l.beginCapture, uintptr(s), relaxed)) }); err != nil {
		return 0, err
	}
	queued := queue()
	err = d.do("Capture", func() error {
		var graph uintptr
		if err := answer(purego.SyscallN(l.endCapture, uintptr(s), uintptr(unsafe.Pointer(&graph)))); err != nil || queued != nil {
			if graph != 0 {
				_ = answer(purego.SyscallN(l.freeGraph, graph)) // the first error is reported
			}
			return err
		}
		err := answer(purego.SyscallN(l.instantiate, uintptr(unsafe.Pointer(&g)), graph, 0))
		if freed := answer(purego.SyscallN(l.freeGraph, graph)); err == nil {
			err = freed
		}
		return err
	})
	if queued != nil {
		err = queued
	}
	return g, err
}

// LaunchGraph queues a graph.
func (d *Driver) LaunchGraph(s driver.Stream, g driver.Graph) error {
	return d.do("LaunchGraph", func() error { return answer(purego.SyscallN(d.library.launchGraph, uintptr(g), uintptr(s))) })
}

// FreeGraph destroys a graph.
func (d *Driver) FreeGraph(g driver.Graph) error {
	return d.do("FreeGraph", func() error { return answer(purego.SyscallN(d.library.freeExec, uintptr(g))) })
}

// Defer does nothing.
func (d *Driver) Defer(driver.Stream, []uint64) error { return nil }

// Close releases the context.
func (d *Driver) Close() error {
	if d.closed {
		return nil
	}
	d.closed = true
	return failed("Close", d.device.ReleasePrimaryCtx())
}

// library holds the addresses of the functions of libcuda that cu lacks.
type library struct {
	reserve, unreserve, create, mapAt, unmap, access, release, granularity, hostAlloc, hostFree uintptr

	beginCapture, endCapture, instantiate, launchGraph, freeGraph, freeExec uintptr
}

func (l *library) open() error {
	handle, err := purego.Dlopen("libcuda.so.1", purego.RTLD_NOW)
	if err != nil {
		return err
	}
	for _, f := range []struct {
		at   *uintptr
		name string
	}{
		{&l.reserve, "cuMemAddressReserve"}, {&l.unreserve, "cuMemAddressFree"}, {&l.create, "cuMemCreate"},
		{&l.mapAt, "cuMemMap"}, {&l.unmap, "cuMemUnmap"}, {&l.access, "cuMemSetAccess"}, {&l.release, "cuMemRelease"},
		{&l.granularity, "cuMemGetAllocationGranularity"}, {&l.hostAlloc, "cuMemHostAlloc"}, {&l.hostFree, "cuMemFreeHost"},
		{&l.beginCapture, "cuStreamBeginCapture_v2"}, {&l.endCapture, "cuStreamEndCapture"},
		{&l.instantiate, "cuGraphInstantiateWithFlags"}, {&l.launchGraph, "cuGraphLaunch"},
		{&l.freeGraph, "cuGraphDestroy"}, {&l.freeExec, "cuGraphExecDestroy"},
	} {
		if *f.at, err = purego.Dlsym(handle, f.name); err != nil {
			return err
		}
	}
	return nil
}
