package fakecuda

import (
	"github.com/weir-ml/weir/kernels/cuda/driver"
	"github.com/weir-ml/weir/kernels/cuda/internal/ptx"
)

// capture is a graph that is being captured.
type capture struct {
	stream  driver.Stream
	pieces  []func() error
	invalid bool // after a call that a capture forbids
}

// enqueue calls queue, which queues work on the stream. While a graph is being captured on the stream, it
// adds queue to the graph instead, and every launch of the graph calls it.
func (d *Driver) enqueue(s driver.Stream, queue func() error) error {
	if d.captured == nil || d.captured.stream != s {
		return queue()
	}
	d.captured.pieces = append(d.captured.pieces, queue)
	return nil
}

// Capture makes a graph.
func (d *Driver) Capture(s driver.Stream, queue func() error) (driver.Graph, error) {
	err := d.call("Capture", func() error {
		if d.captured != nil {
			return refuse("Capture", driver.ErrInvalid, "another capture is under way")
		}
		if _, err := d.stream("Capture", s); err != nil {
			return err
		}
		d.captured = &capture{stream: s}
		return nil
	})
	if err != nil {
		return 0, err
	}
	err = queue()
	d.mu.Lock()
	defer d.mu.Unlock()
	made := d.captured
	d.captured = nil
	if err == nil && made.invalid {
		err = refuse("Capture", driver.ErrInvalid, "a call on the stream has ended the capture")
	}
	if err != nil {
		return 0, err
	}
	d.graphs = append(d.graphs, made.pieces)
	return driver.Graph(len(d.graphs)), nil
}

func (d *Driver) graph(call string, g driver.Graph) ([]func() error, error) {
	if g == 0 || int(g) > len(d.graphs) || d.graphs[g-1] == nil {
		return nil, refuse(call, driver.ErrInvalid, "no graph %d", g)
	}
	return d.graphs[g-1], nil
}

// LaunchGraph queues the pieces of a graph one by one. Each may touch only the memory that a separate
// call could touch.
func (d *Driver) LaunchGraph(s driver.Stream, g driver.Graph) error {
	return d.call("LaunchGraph", func() error {
		pieces, err := d.graph("LaunchGraph", g)
		for _, piece := range pieces {
			if err == nil {
				err = piece()
			}
		}
		return err
	})
}

// FreeGraph destroys a graph.
func (d *Driver) FreeGraph(g driver.Graph) error {
	return d.call("FreeGraph", func() error {
		_, err := d.graph("FreeGraph", g)
		if err == nil {
			d.graphs[g-1] = nil
		}
		return err
	})
}

// deferred is the memory that a deferred piece of work may touch: the buffers of the first range that
// had its addresses when Defer was called.
type deferred map[driver.Addr]touchable

type touchable struct {
	*ptx.Region
	fresh bool
}

// Defer records the buffers that a piece of work may touch when it is queued later.
func (d *Driver) Defer(s driver.Stream, words []uint64) error {
	return d.call("Defer", func() error {
		q, err := d.stream("Defer", s)
		if err != nil {
			return err
		}
		buffers := deferred{}
		for _, w := range words {
			at := driver.Addr(w)
			if _, known := buffers[at]; known || !d.followed(at) {
				continue
			}
			r, fresh, err := d.region("Defer", at)
			if err != nil {
				return err
			}
			buffers[at] = touchable{r, fresh}
		}
		if len(buffers) > 0 {
			q.deferred = append(q.deferred, buffers)
		}
		return nil
	})
}

// followed reports whether an address is in the first range.
func (d *Driver) followed(at driver.Addr) bool { return len(d.ranges) > 0 && d.find(at) == d.ranges[0] }

// buffers returns the buffers at addresses that a piece of work on a stream may touch: the buffers
// recorded by Defer if the work was deferred, else the buffers that are live now.
func (d *Driver) buffers(q *stream, call string, at []driver.Addr) (all []touchable, err error) {
	var recorded deferred
	for _, a := range at {
		if recorded == nil && len(q.deferred) > 0 && d.followed(a) {
			recorded, q.deferred = q.deferred[0], q.deferred[1:]
		}
	}
	for _, a := range at {
		t, known := recorded[a]
		if !known && recorded != nil && d.followed(a) {
			return nil, refuse(call, driver.ErrInvalid, "address %#x is none of those that Defer announced", a)
		}
		if !known {
			if t.Region, t.fresh, err = d.region(call, a); err != nil {
				return nil, err
			}
		}
		all = append(all, t)
	}
	return all, nil
}
