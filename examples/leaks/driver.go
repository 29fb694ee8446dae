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
// for pieces of 2 MiB. The pages that it maps are always the first ones of its memory, because
// their number determines the time.
type driver struct {
	dev    *kernels.Host
	mem    []byte
	mapped int // number of pieces with pages
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
	if err != nil {
		return nil, errors.Join(err, dev.Close())
	}
	return d, nil
}

// run executes the calls in a part of an allocator's history, and returns their duration.
func (d *driver) run(history []snapshot.TraceEntry) (took time.Duration, err error) {
	begin := time.Now()
	for _, e := range history {
		for range (e.Size + piece - 1) / piece {
			switch e.Action {
			case snapshot.SegmentAlloc, snapshot.SegmentMap:
				if d.mapped == len(d.mem)/piece {
					return 0, fmt.Errorf("%d bytes are more than the simulated device has", e.Size)
				}
				err = errors.Join(err, memory.System{}.Populate(d.mem[d.mapped*piece:][:piece]))
				d.mapped++
			case snapshot.SegmentFree, snapshot.SegmentUnmap:
				d.mapped--
				err = errors.Join(err, memory.System{}.Discard(d.mem[d.mapped*piece:][:piece]))
			}
		}
	}
	return time.Since(begin), err
}
