package driver

import (
	"errors"
	"fmt"
)

// Addr is an address of the device. 0 is none.
type Addr uint64

// Handles of a driver. The zero Stream is none; others are numbers of the driver.
type (
	Stream   uintptr
	Event    uintptr
	Module   uintptr
	Function uintptr
	Graph    uintptr
)

// Facts is what a device is.
type Facts struct {
	Name           string
	Major, Minor   int   // compute capability
	Processors     int   // multiprocessors
	SharedPerBlock int   // bytes of shared memory that a block may have
	Total          int64 // bytes of memory
	Page           int64 // bytes of the smallest page that Map maps
}

// Launch is one launch of a kernel.
type Launch struct {
	Grid, Block [3]uint32
	Shared      uint32 // bytes of dynamic shared memory
	// Args has a word for each parameter, the value in its low bytes. It is borrowed for
	// the call.
	Args []uint64
}

// Driver is one device with a context. The errors of its calls are an [*Error].
type Driver interface {
	Facts() Facts
	// MemInfo returns the bytes of memory that are free on the device, and all.
	MemInfo() (free, total int64, err error)

	// Reserve takes a range of addresses without memory. Its start is a multiple of the page.
	Reserve(bytes int64) (Addr, error)
	// Unreserve gives a range back in which nothing is mapped.
	Unreserve(at Addr, bytes int64) error
	// Map supplies the pages from at on, a multiple of page bytes, each as memory of its own;
	// page is a multiple of Facts.Page. It is ErrOutOfMemory where there is too little, and
	// then nothing was mapped.
	Map(at Addr, bytes, page int64) error
	// Unmap gives the memory of such pages back. Queued work must not use them.
	Unmap(at Addr, bytes, page int64) error
	// HostAlloc returns page-locked memory of the host, which copies need to be queued.
	HostAlloc(bytes int) ([]byte, error)
	// HostFree gives it back.
	HostFree(mem []byte) error

	// CopyIn, CopyOut and Copy queue a copy to, from and within the device. Memory of the host
	// must be HostAlloc's, and stay as it is until the copy is done.
	CopyIn(s Stream, to Addr, from []byte) error
	CopyOut(s Stream, to []byte, from Addr) error
	Copy(s Stream, to, from Addr, bytes int64) error
	// Peer reports whether CopyPeer may copy from the memory of another device of the process, and
	// sees to it that it may.
	Peer(from Driver) (bool, error)
	// CopyPeer queues a copy from the memory of such a device.
	CopyPeer(s Stream, to Addr, from Driver, at Addr, bytes int64) error
	// Fill queues the setting of bytes to a value.
	Fill(s Stream, to Addr, value byte, bytes int64) error

	NewStream() (Stream, error)
	FreeStream(s Stream) error
	// Sync waits for all that was queued on a stream, and returns what has failed since.
	Sync(s Stream) error
	NewEvent() (Event, error)
	FreeEvent(e Event) error
	// Record notes the work queued on a stream so far; Wait makes what is queued on another one
	// from now on run after it, of another device with Peer too. An event that was never recorded is no
	// reason to wait.
	Record(e Event, s Stream) error
	Wait(s Stream, e Event) error
	// Done waits on the host for what was noted last.
	Done(e Event) error

	// Load makes kernels of the text of a PTX module. It is ErrRefused, with the driver's log,
	// where the text cannot be used.
	Load(ptx string) (Module, error)
	Unload(m Module) error
	// Function returns a kernel of a module by its name.
	Function(m Module, name string) (Function, error)
	// Launch queues a kernel.
	Launch(s Stream, f Function, l Launch) error

	// Capture makes a graph of the launches, copies within the device and fillings that queue asks
	// for on a stream. None of them runs then; other calls on the stream are errors meanwhile.
	Capture(s Stream, queue func() error) (Graph, error)
	// LaunchGraph queues what a graph has, in its order and at its addresses.
	LaunchGraph(s Stream, g Graph) error
	FreeGraph(g Graph) error
	// Defer says that work on a stream is put off: what Launch, Copy, Fill or LaunchGraph queue next there
	// are the pieces that were said, in that order, and words are the arguments of one. Hardware does not
	// ask; a driver that watches memory looks now which buffers they may touch.
	Defer(s Stream, words []uint64) error

	// Close gives the context back, and all that is in it. A second Close does nothing.
	Close() error
}

// Kinds of errors, wrapped by an [*Error].
var (
	// ErrNoDevice is returned where there is no driver, or no device of that number.
	ErrNoDevice = errors.New("no such CUDA device")
	// ErrOutOfMemory is returned where the device, or the host for HostAlloc, has too little memory.
	ErrOutOfMemory = errors.New("CUDA is out of memory")
	// ErrRefused is returned by Load for PTX that the driver does not take.
	ErrRefused = errors.New("the CUDA driver refuses the PTX")
	// ErrLost is returned by every call after the device failed, by an access out of bounds for
	// instance. The driver can only be closed.
	ErrLost = errors.New("the CUDA device is lost")
	// ErrInvalid is returned for a call that makes no sense.
	ErrInvalid = errors.New("invalid call of the CUDA driver")
)

// Error is what a driver answers to a call.
type Error struct {
	Call string // of this interface
	Code int    // CUresult, 0 where the driver was not asked
	Text string // what it means
	Log  string // of the compiler of PTX, "" for others
	Kind error  // one of the Err variables
}

// Error says call, kind, code, and the log on lines of its own.
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
