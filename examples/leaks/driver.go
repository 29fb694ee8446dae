package main

import (
	"errors"
	"fmt"
	"time"
	"unsafe"

	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/memory/snapshot"
)

// driver executes on the host the calls of a caching allocator to its device: it maps pages for a
// segment, and discards them with the segment. It makes the same system calls as Weir's arenas,
// for pieces of 2 MiB, and gives a segment any free pieces.
type driver struct {
	dev        *kernels.Host
	mem        []byte
	free, held []int // pieces without pages, and pieces with pages
}

const piece = 2 << 20

// newDriver returns a device with a given number of bytes.
func newDriver(bytes int64) (*driver, error) {
	pieces := int(bytes/piece) + 1
	dev, err := kernels.NewHost(kernels.HostConfig{Capacity: int64(pieces+3) * piece})
	if err != nil {
		return nil, err
	}
	d := &driver{dev: dev}
	b, err := dev.Alloc(memory.Resident, kernels.Uint8, (pieces+1)*piece)
	if err == nil {
		d.mem, err = dev.Lend(b)
	}
	if err == nil { // starting at the first whole piece
		d.mem = d.mem[-uintptr(unsafe.Pointer(unsafe.SliceData(d.mem)))%piece:][:pieces*piece]
		err = memory.System{}.Discard(d.mem)
	}
	for i := range pieces {
		d.free = append(d.free, i)
	}
	if err != nil {
		return nil, errors.Join(err, dev.Close())
	}
	return d, nil
}

// run executes the calls in a part of an allocator's history, and returns their duration.
func (d *driver) run(history []snapshot.Entry) (took time.Duration, err error) {
	begin := time.Now()
	for _, e := range history {
		switch e.Action {
		case snapshot.SegmentAlloc, snapshot.SegmentMap:
			err = errors.Join(err, move(e.Size, &d.free, &d.held, d.mem, memory.System{}.Populate))
		case snapshot.SegmentFree, snapshot.SegmentUnmap:
			err = errors.Join(err, move(e.Size, &d.held, &d.free, d.mem, memory.System{}.Discard))
		}
	}
	return time.Since(begin), err
}

// move calls advise for pieces of the given total size, and moves them between two lists.
func move(bytes int64, from, to *[]int, mem []byte, advise func([]byte) error) error {
	count := int((bytes + piece - 1) / piece)
	if count > len(*from) {
		return fmt.Errorf("%d bytes are more than the simulated device has", bytes)
	}
	for range count {
		last := len(*from) - 1
		i := (*from)[last]
		*from, *to = (*from)[:last], append(*to, i)
		if err := advise(mem[i*piece:][:piece]); err != nil {
			return err
		}
	}
	return nil
}
