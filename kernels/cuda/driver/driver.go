package driver

import (
	"errors"
	"fmt"
)

// Addr is an address in the memory of the device. 0 is not a valid address.
type Addr uint64

// Handles of a driver. The zero Stream is invalid; other values are chosen by the driver.
type (
	Stream   uintptr
	Event    uintptr
	Module   uintptr
	Function uintptr
	Graph    uintptr
)

// Properties describes a device.
type Properties struct {
	Name           string
	Major, Minor   int   // compute capability
	Processors     int   // multiprocessors
	SharedPerBlock int   // bytes of shared memory available to a block
	Total          int64 // bytes of memory
	Page           int64 // size of the smallest page that Map maps, in bytes
}

// Launch is a launch of a kernel.
type Launch struct {
	Grid, Block [3]uint32
	Shared      uint32 // bytes of dynamic shared memory
	// Args has a word for each parameter, with the value in its low bytes. It is borrowed for
	// the call.
	Args []uint64
}

// Driver is a device with a context. The errors of its calls are of type [*Error].
type Driver interface {
	Properties() Properties
	// MemInfo returns the free and the total memory of the device in bytes.
	MemInfo() (free, total int64, err error)

	// Reserve reserves a range of addresses without memory. Its start is a multiple of the
	// page.
	Reserve(bytes int64) (Addr, error)
	// Unreserve releases a range in which nothing is mapped.
	Unreserve(at Addr, bytes int64) error
	// Map maps memory at the pages from at on, with an allocation for each page bytes. at and
	// bytes are multiples of page, and page is a multiple of Properties.Page. It returns
	// ErrOutOfMemory, and maps nothing, if there is too little memory.
	Map(at Addr, bytes, page int64) error
	// Unmap releases the memory of pages that Map mapped. Queued work must not use them.
	Unmap(at Addr, bytes, page int64) error
	// HostAlloc returns page-locked host memory, which queued copies require.
	HostAlloc(bytes int) ([]byte, error)
	// HostFree releases memory from HostAlloc.
	HostFree(mem []byte) error

	// CopyIn, CopyOut and Copy queue a copy to, from and within the device. Host memory must
	// come from HostAlloc, and must not change until the copy is done.
	CopyIn(s Stream, to Addr, from []byte) error
	CopyOut(s Stream, to []byte, from Addr) error
	Copy(s Stream, to, from Addr, bytes int64) error
	// Peer reports whether CopyPeer can copy from the memory of another device of the process,
	// and enables it.
	Peer(from Driver) (bool, error)
	// CopyPeer queues a copy from the memory of a device that Peer has enabled.
	CopyPeer(s Stream, to Addr, from Driver, at Addr, bytes int64) error
	// Fill queues a fill of memory with a byte value.
	Fill(s Stream, to Addr, value byte, bytes int64) error

	NewStream() (Stream, error)
	FreeStream(s Stream) error
	// Sync waits for all work queued on a stream, and returns the errors since the last Sync.
	Sync(s Stream) error
	NewEvent() (Event, error)
	FreeEvent(e Event) error
	// Record marks the work queued on a stream so far. Wait makes subsequent work on another
	// stream run after it; with Peer, the stream may be another device's. Waiting for an event
	// that was never recorded has no effect.
	Record(e Event, s Stream) error
	Wait(s Stream, e Event) error
	// Done blocks the host until the work of the last Record is done.
	Done(e Event) error

	// Load loads the text of a PTX module. It returns ErrRefused, with the driver's log, if the
	// text cannot be compiled.
	Load(ptx string) (Module, error)
	Unload(m Module) error
	// Function returns a kernel of a module by its name.
	Function(m Module, name string) (Function, error)
	// Launch queues a kernel.
	Launch(s Stream, f Function, l Launch) error

	// Capture makes a graph of the launches, the copies within the device and the fills that
	// queue issues on a stream. None of them runs at that time; other calls on the stream fail
	// meanwhile.
	Capture(s Stream, queue func() error) (Graph, error)
	// LaunchGraph queues the contents of a graph, in its order and at its addresses.
	LaunchGraph(s Stream, g Graph) error
	FreeGraph(g Graph) error
	// Defer announces work on a stream that is queued later: the next Launch, Copy, Fill or
	// LaunchGraph calls there are the announced pieces, in that order, and words are the
	// arguments of one. Hardware ignores it; a driver that checks memory accesses determines
	// now which buffers the pieces may touch.
	Defer(s Stream, words []uint64) error

	// Close releases the context with all its resources. A second Close does nothing.
	Close() error
}

// Kinds of errors, wrapped by an [*Error].
var (
	// ErrNoDevice is returned if there is no driver, or no device with that number.
	ErrNoDevice = errors.New("no such CUDA device")
	// ErrOutOfMemory is returned if the device, or for HostAlloc the host, has too little
	// memory.
	ErrOutOfMemory = errors.New("CUDA is out of memory")
	// ErrRefused is returned by Load for PTX that the driver rejects.
	ErrRefused = errors.New("the CUDA driver refuses the PTX")
	// ErrLost is returned by every call after the device has failed, for example after an access
	// out of bounds. The driver can then only be closed.
	ErrLost = errors.New("the CUDA device is lost")
	// ErrInvalid is returned for an invalid call.
	ErrInvalid = errors.New("invalid call of the CUDA driver")
)

// Error is a failed call to the driver or to a library of CUDA.
type Error struct {
	Call string // method of Driver, or function of a library
	Code int    // CUresult or cublasStatus_t, or 0 if nothing was called
	Text string // description of the code
	Log  string // log of the PTX compiler, "" for other calls
	Kind error  // one of the Err variables
}

// Error returns the call, the kind and the code, followed by the log on separate lines.
func (e *Error) Error() string {
	text := fmt.Sprintf("%v: %s: %s", e.Kind, e.Call, e.Text)
	if e.Code != 0 {
		text += fmt.Sprintf(" (CUDA error %d)", e.Code)
	}
	if e.Log != "" {
		text += "\n" + e.Log
	}
	return text
}

// Unwrap returns Kind.
func (e *Error) Unwrap() error { return e.Kind }
