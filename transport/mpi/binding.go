//go:build mpi

package mpi

/*
#include <mpi.h>
#include <sched.h>
#include <signal.h>

#pragma GCC diagnostic ignored "-Wstringop-overflow" // GCC warns about MPICH's null statuses

typedef struct {
	int level, process, processes, tags;
	MPI_Comm comm;
} world;

// start initializes MPI. It restores the signal handlers that MPI replaces.
static int start(world *w) {
	struct sigaction old[32];
	for (int s = 1; s < 32; s++) sigaction(s, NULL, &old[s]);
	int code = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &w->level);
	for (int s = 1; s < 32; s++) sigaction(s, &old[s], NULL);
	int *most, found = 0;
	if (!code) code = MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	if (!code) code = MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &most, &found);
	w->tags = found ? *most : 32767;
	if (!code) code = MPI_Comm_dup(MPI_COMM_WORLD, &w->comm); // the copy has the same error handler
	if (!code) code = MPI_Comm_rank(w->comm, &w->process);
	if (!code) code = MPI_Comm_size(w->comm, &w->processes);
	return code;
}

static int end(world *w) {
	int code = MPI_Comm_free(&w->comm);
	return code ? code : MPI_Finalize();
}

typedef struct {
	int done, found, from, tag, size;
	MPI_Message message;
} event;

// poll_once tests requests, stores the indices of the completed ones in done, and matches the first
// message that has arrived.
static int poll_once(MPI_Comm comm, int n, MPI_Request *requests, int *done, event *out) {
	out->done = 0;
	MPI_Status status;
	int code = n ? MPI_Testsome(n, requests, &out->done, done, MPI_STATUSES_IGNORE) : MPI_SUCCESS;
	if (!code) code = MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &out->found, &out->message, &status);
	if (!code && out->found) {
		out->from = status.MPI_SOURCE;
		out->tag = status.MPI_TAG;
		code = MPI_Get_count(&status, MPI_BYTE, &out->size);
	}
	return code;
}

static int post(MPI_Comm comm, void *data, int n, int to, int tag, MPI_Request *request) {
	return MPI_Issend(data, n, MPI_BYTE, to, tag, comm, request);
}

static int take(MPI_Message message, void *data, int n, MPI_Request *request) {
	return MPI_Imrecv(data, n, MPI_BYTE, &message, request);
}

static int takeNow(MPI_Message message, void *data, int n) {
	return MPI_Mrecv(data, n, MPI_BYTE, &message, MPI_STATUS_IGNORE);
}
*/
import "C"

import (
	"fmt"
	"strings"
	"unsafe"
)

// binding calls MPI. Its callers must serialize the calls.
type binding struct {
	world    C.world
	requests []C.MPI_Request
	done     []C.int // indices of completed requests
	event    C.event
}

// arrival is a message that MPI has matched but not received.
type arrival struct {
	from, tag, size int
	message         C.MPI_Message
}

// fault returns an MPI call's error, with MPI's text, or nil.
func fault(code C.int, call string) error {
	if code == C.MPI_SUCCESS {
		return nil
	}
	var text [C.MPI_MAX_ERROR_STRING]C.char
	var n C.int
	C.MPI_Error_string(code, &text[0], &n)
	return fmt.Errorf("mpi: %s: %s", call, C.GoStringN(&text[0], n))
}

// start initializes MPI. The thread that calls it must also call end.
func (b *binding) start() error {
	var flag C.int
	if C.MPI_Initialized(&flag); flag != 0 {
		return fmt.Errorf("mpi: MPI is already initialized in this process: start only one World")
	}
	if code := C.start(&b.world); code != C.MPI_SUCCESS {
		return fault(code, "start")
	}
	if b.world.level < C.MPI_THREAD_SERIALIZED {
		return fmt.Errorf("mpi: the library has thread level %d, but MPI_THREAD_SERIALIZED is needed: use a library that supports it", b.world.level)
	}
	return nil
}

func (b *binding) end() error { return fault(C.end(&b.world), "MPI_Finalize") }

// library returns the name and version of the MPI library.
func library() string {
	var text [C.MPI_MAX_LIBRARY_VERSION_STRING]C.char
	var n C.int
	C.MPI_Get_library_version(&text[0], &n)
	name, _, _ := strings.Cut(C.GoStringN(&text[0], n), "\n")
	return strings.Join(strings.Fields(strings.TrimRight(name, "\x00")), " ")
}

// send starts sending p, which must be pinned, and appends the request.
func (b *binding) send(p []byte, to, tag int) error {
	b.requests = append(b.requests, *new(C.MPI_Request))
	return fault(C.post(b.world.comm, unsafe.Pointer(unsafe.SliceData(p)), C.int(len(p)), C.int(to), C.int(tag), &b.requests[len(b.requests)-1]), "MPI_Issend")
}

// receive starts receiving a message into p, which must be pinned, and appends the request.
func (b *binding) receive(p []byte, a *arrival) error {
	b.requests = append(b.requests, *new(C.MPI_Request))
	return fault(C.take(a.message, unsafe.Pointer(unsafe.SliceData(p)), C.int(len(p)), &b.requests[len(b.requests)-1]), "MPI_Imrecv")
}

// receiveNow receives a message of a few bytes. It does not block, because such a message arrives
// with its header.
func (b *binding) receiveNow(p []byte, a *arrival) error {
	return fault(C.takeNow(a.message, unsafe.Pointer(unsafe.SliceData(p)), C.int(len(p))), "MPI_Mrecv")
}

// poll returns the indices of the completed requests, which the caller then removes, and the first
// message that has arrived.
func (b *binding) poll() (done []C.int, a arrival, found bool, err error) {
	n := len(b.requests)
	if cap(b.done) < n {
		b.done = make([]C.int, cap(b.requests))
	}
	code := C.poll_once(b.world.comm, C.int(n), unsafe.SliceData(b.requests), unsafe.SliceData(b.done[:n]), &b.event)
	if err := fault(code, "MPI_Testsome, MPI_Improbe"); err != nil {
		return nil, a, false, err
	}
	if s := &b.event; s.found != 0 {
		a, found = arrival{int(s.from), int(s.tag), int(s.size), s.message}, true
	}
	return b.done[:max(b.event.done, 0)], a, found, nil // done can be MPI_UNDEFINED, which is negative
}

// yield lets another thread run.
func yield() { C.sched_yield() }
