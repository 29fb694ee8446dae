package job

import (
	"cmp"
	"context"
	"strconv"

	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/transport"
	"github.com/weir-ml/weir/transport/tcp"
)

// Tensor is a tensor of a checkpoint: a weight or a moment of the optimizer on one device.
type Tensor struct {
	Name   string
	Shape  []int
	Device kernels.Device
	Buffer kernels.Buffer
}

func (t *Tensor) read() ([]float32, error) {
	values := make([]float32, t.Buffer.N)
	return values, t.Device.ReadFloat32(values, t.Buffer)
}

// tensorAt is a tensor on the device of a rank.
type tensorAt struct {
	rank   int
	buffer kernels.Buffer
}

// remote is the device of a rank of another process: a Null device whose tensors can be read
// while that process lends them.
type remote struct {
	*kernels.Null
	rank   int
	world  *World
	number map[kernels.Buffer]int // tensor numbers
}

// Remote returns the device of a rank of another process, as a Null device for target. Stages on
// it are never called; its tensors can be read within Fetching.
func (w *World) Remote(rank int, target kernels.Compute) Device {
	return &remote{kernels.NewNull(target), rank, w, map[kernels.Buffer]int{}}
}

// Lend numbers the tensors of a checkpoint, which must be in the same order in all processes.
// devices has the devices of all ranks.
func (w *World) Lend(devices []Device, tensors []Tensor) {
	for _, t := range tensors {
		rank := 0
		for kernels.Device(devices[rank]) != t.Device {
			rank++
		}
		if r, is := devices[rank].(*remote); is {
			r.number[t.Buffer] = len(w.tensors)
		}
		w.tensors = append(w.tensors, tensorAt{rank, t.Buffer})
	}
}

// Fetching calls f in the leading process, which can then read the tensors of all ranks. The
// other processes lend their tensors and do not call f.
func (w *World) Fetching(f func() error) error {
	if w == nil {
		return f()
	}
	lent := make(chan error, 1)
	ctx := context.Background()
	go func() { lent <- w.lend(ctx) }()
	if !w.Leads() {
		return <-lent
	}
	err := f()
	_, over := w.ends[0].Exchange(ctx, nil)
	return cmp.Or(err, over, <-lent)
}

// lend sends tensors of this process to the leader until it has all that it needs. In the leader,
// ranks other than the first only take part in the exchanges.
func (w *World) lend(ctx context.Context) error {
	return w.each(func(i int, end *tcp.Endpoint[kernels.Buffer]) error {
		if w.Leads() && i == 0 {
			return nil
		}
		for {
			all, err := end.Exchange(ctx, nil)
			if err != nil || len(all[0]) == 0 {
				return err
			}
			number, err := strconv.Atoi(string(all[0]))
			if err != nil {
				return err
			}
			if t := w.tensors[number]; t.rank == w.First+i {
				tag := transport.Tag{Content: transport.Total, Param: number}
				if err := end.Send(ctx, 0, tag, []kernels.Buffer{t.buffer}); err != nil {
					return err
				}
				if err := end.Wait(ctx, 0, tag); err != nil {
					return err
				}
			}
		}
	})
}

// ReadFloat32 fetches a tensor of a checkpoint; all other buffers are zero.
func (r *remote) ReadFloat32(dst []float32, src kernels.Buffer) error {
	number, known := r.number[src]
	if !known {
		return r.Null.ReadFloat32(dst, src)
	}
	ctx, end, own := context.Background(), r.world.ends[0], r.world.own
	if _, err := end.Exchange(ctx, []byte(strconv.Itoa(number))); err != nil {
		return err
	}
	h := make([]kernels.Buffer, 1)
	if err := end.Recv(ctx, r.rank, transport.Tag{Content: transport.Total, Param: number}, h); err != nil {
		return err
	}
	err := own.ReadFloat32(dst, h[0])
	_, released := own.Release(h[0])
	return cmp.Or(err, released)
}
