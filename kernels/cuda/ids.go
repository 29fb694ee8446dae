package cuda

import (
	"fmt"
	"slices"

	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
)

// ids summarizes an Int32 buffer that the host has written completely: its smallest and largest
// elements and their positions. This allows ids to be checked against a vocabulary without
// waiting.
type ids struct {
	handle       memory.Handle
	min, max     int32
	minAt, maxAt int
}

// wrote records a summary of what was written to a buffer, or that the buffer's contents are
// unknown.
func (d *Device) wrote(b kernels.Buffer, x []int32) {
	d.forget(b)
	if len(x) < b.N || d.Bytes(b) < d.Bytes(kernels.Buffer{Handle: b.Handle}) { // or a view
		return
	}
	k := ids{handle: b.Handle, min: x[0], max: x[0]}
	for i, id := range x {
		if id < k.min {
			k.min, k.minAt = id, i
		}
		if id > k.max {
			k.max, k.maxAt = id, i
		}
	}
	d.ids = append(d.ids, k)
}

// forget removes the summary of a buffer.
func (d *Device) forget(b kernels.Buffer) {
	if i := d.known(b); i >= 0 {
		d.ids[i] = d.ids[len(d.ids)-1]
		d.ids = d.ids[:len(d.ids)-1]
	}
}

// known returns the index of a buffer's summary in d.ids, or -1.
func (d *Device) known(b kernels.Buffer) int {
	return slices.IndexFunc(d.ids, func(k ids) bool { return k.handle == b.Handle })
}

// inRange requires that every id is the index of a row of the vocabulary. If the host has not
// written all the ids, for instance because another device sent them, it waits for the device to
// check them, because a bad id must prevent all writes.
func (o *operation) inRange(name string, b kernels.Buffer, vocabulary int) {
	d := o.device
	if o.err != nil {
		return
	}
	if i := d.known(b); i >= 0 {
		if k := &d.ids[i]; k.min < 0 {
			o.bad(name, k.minAt, k.min, vocabulary)
		} else if int(k.max) >= vocabulary {
			o.bad(name, k.maxAt, k.max, vocabulary)
		}
		return
	}
	o.line("in_range", 1, 256, uint64(d.scratch), o.at(b), uint64(b.N), uint64(vocabulary))
	var bad [2]uint32
	words(o, bad[:], d.scratch)
	if o.err == nil && int(bad[0]) < b.N {
		o.bad(name, int(bad[0]), int32(bad[1]), vocabulary)
	}
}

// bad reports an id that is out of range, with the same error as the host.
func (o *operation) bad(name string, at int, id int32, vocabulary int) {
	o.err = fmt.Errorf("%w: %s: %s[%d] is %d, the vocabulary has %d", kernels.ErrShape, o.name, name, at, id, vocabulary)
}
