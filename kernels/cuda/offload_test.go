package cuda_test

import (
	"context"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/engine/offload"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/kernels/cuda/driver"
	"github.com/weir-ml/weir/kernels/cuda/internal/fakecuda"
	"github.com/weir-ml/weir/memory"
)

// edge is a pair of streams: the second waits for events that were recorded on the first.
type edge [2]driver.Stream

// The streams of a device that offloads.
const (
	compute driver.Stream = iota + 1
	in
	out
	leaving
	returning
)

// edges is a driver that drops the waits of one edge, and counts the waits of all others.
type edges struct {
	driver.Driver
	without  edge
	recorded map[driver.Event]driver.Stream
	waits    map[edge]int
}

func edgesOf(d driver.Driver, without edge) *edges {
	return &edges{d, without, map[driver.Event]driver.Stream{}, map[edge]int{}}
}

func (e *edges) Record(event driver.Event, s driver.Stream) error {
	e.recorded[event] = s
	return e.Driver.Record(event, s)
}

func (e *edges) Wait(s driver.Stream, event driver.Event) error {
	between := edge{e.recorded[event], s}
	if between == e.without {
		return nil
	}
	e.waits[between]++
	return e.Driver.Wait(s, event)
}

// farLayout has places for copies, which are used in turn. The third begins within the memory of a
// layout with two, and ends beyond it.
func farLayout(places int) *memory.Layout {
	l := &memory.Layout{Height: int64(places) * 4096, Places: []int32{0}}
	for i := range places {
		l.Allocations = append(l.Allocations, memory.Allocation{Offset: int64(i)*3584 + 512, Bytes: 4 * n, Class: memory.Saved})
		l.Places, l.Levels = append(l.Places, int32(i+1)), append(l.Levels, memory.Level{})
	}
	return l
}

// offloads runs a step in which microbatch i saves i·x, offloads and reloads it as a plan does, and
// adds (i + 1)·i·x to a sum. Places are reused as soon as possible. It returns the sum.
func offloads(t *testing.T, fake *fakecuda.Driver, as driver.Driver, microbatches int) (sum []float32, err error) {
	dev := openFake(t, fake, as)
	defer func() { _ = dev.Close() }()
	must := func(e error) {
		if err == nil {
			err = e
		}
	}
	alloc := func(class memory.Class) kernels.Buffer {
		b, e := dev.Alloc(class, kernels.Float32, n)
		must(e)
		return b
	}
	release := func(b kernels.Buffer) {
		_, e := dev.Release(b)
		must(e)
	}
	total := alloc(memory.Resident)
	must(dev.Zero(total))
	away, e := offload.NewOn(dev, 0)
	require.NoError(t, e)
	defer func() { _ = away.Close() }()
	for _, places := range []int{2, 3} { // a step grows
		must(away.SetLayout(nil))
		must(away.SetLayout(farLayout(places)))
	}
	must(away.Start(3))
	asked, waited := fake.Calls("HostAlloc", "HostFree", "NewEvent"), fake.Calls("Sync")
	near, back, copies := make([]kernels.Buffer, microbatches), make([]kernels.Buffer, microbatches), make([]int32, microbatches)
	for i := 0; i < microbatches+3 && err == nil; i++ {
		await := func(m int) {
			_, e := away.Wait(context.Background(), copies[m])
			must(e)
		}
		if m := i - 3; m >= 0 { // the backward
			await(m)
			must(dev.Axpy(total, back[m], uint64(math.Float32bits(float32(m+1))), n))
			release(back[m])
			_, e := away.Free(copies[m])
			must(e)
		}
		if i < microbatches { // the forward, and OFFLOAD
			x := alloc(memory.Entry)
			must(dev.WriteFloat32(x, ramp(n)))
			near[i] = alloc(memory.Saved)
			must(dev.Zero(near[i]))
			must(dev.Axpy(near[i], x, uint64(math.Float32bits(float32(i))), n))
			release(x)
			if err != nil {
				break
			}
			away.SetPlace(i % 3)
			copies[i], e = away.Store(near[i])
			must(e)
		}
		if m := i - 1; m >= 0 && m < microbatches { // WAIT_OFFLOAD
			await(m)
			release(near[m])
		}
		if m := i - 2; m >= 0 && m < microbatches && err == nil { // RELOAD
			back[m], e = dev.Like(memory.Saved, near[m])
			must(e)
			must(away.Load(copies[m], back[m]))
		}
	}
	if err == nil {
		require.Equal(t, asked, fake.Calls("HostAlloc", "HostFree", "NewEvent"), "memory is allocated before the step")
		require.Equal(t, waited, fake.Calls("Sync"), "the host waits for no copy")
		require.Zero(t, away.Live())
	}
	sum = make([]float32, n)
	must(dev.ReadFloat32(sum, total))
	return sum, err
}

// offloaded returns the sum that offloads should return.
func offloaded(microbatches int) []float32 {
	want := make([]float32, n)
	for i := range want {
		for m := range microbatches {
			want[i] += float32((m + 1) * m * (i + 1))
		}
	}
	return want
}

// In every order that the events allow, saved state comes back from page-locked memory as it left. Two
// streams make the copies. Nothing is allocated within the step, and the host does not wait.
func TestOffload(t *testing.T) {
	for seed := range uint64(60) {
		fake := fakecuda.New(seed, 64*page, page)
		sum, err := offloads(t, fake, fake, 12)
		require.NoError(t, err, "seed %d", seed)
		require.Equal(t, offloaded(12), sum, "seed %d", seed)
		free, total, _ := fake.MemInfo()
		require.Equal(t, total, free)
		require.Equal(t, fake.Calls("HostAlloc"), fake.Calls("HostFree"))
	}
}

// Every edge between the streams of a step that offloads is necessary: without it, some order gives a
// wrong result, and the test detects it. The edges of copies have gone missing in other projects:
//   - copies out wait for kernels: current_stream() within the copy's stream (torchtitan #2581)
//   - kernels wait for copies out: a buffer freed too early (torchtune #1867), and a copy back, which
//     waits for kernels, that races its own copy out (Megatron-LM #7398)
//   - copies back wait for kernels: a host buffer that is read before it is written
//     (ROCm/TransformerEngine #721)
//   - kernels wait for copies back: a tensor used without its wait (trl #7195)
func TestOffloadEdges(t *testing.T) {
	fake := fakecuda.New(1, 64*page, page)
	all := edgesOf(fake, edge{})
	_, err := offloads(t, fake, all, 12)
	require.NoError(t, err)
	for _, copies := range []edge{{compute, leaving}, {leaving, compute}, {compute, returning}, {returning, compute}} {
		require.Equal(t, 12, all.waits[copies], "%v", copies)
	}
	delete(all.waits, edge{compute, out}) // of the sum's read: see TestMissingEdges
	for without := range all.waits {
		found := 0
		for seed := range uint64(20) {
			fake := fakecuda.New(seed, 64*page, page)
			if sum, err := offloads(t, fake, edgesOf(fake, without), 12); err != nil || !slices.Equal(sum, offloaded(12)) {
				found++
			}
		}
		require.Positive(t, found, "%v", without)
	}
}

// If page-locked memory is not available, the step fails before it begins, and the next step works.
func TestOffloadRefused(t *testing.T) {
	fake := fakecuda.New(1, 64*page, page)
	dev := openFake(t, fake, fake)
	fake.Plant("NewStream", 2, driver.ErrOutOfMemory)
	_, err := offload.NewOn(dev, 0)
	require.ErrorIs(t, err, driver.ErrOutOfMemory)
	_, err = offload.NewOn(dev, -1)
	require.Error(t, err)
	away, err := offload.NewOn(dev, 2*4096)
	require.NoError(t, err)
	fake.Plant("HostAlloc", 1, driver.ErrOutOfMemory)
	err = away.SetLayout(farLayout(2))
	require.ErrorIs(t, err, memory.ErrOutOfMemory)
	require.ErrorIs(t, err, driver.ErrOutOfMemory)
	require.ErrorIs(t, away.SetLayout(farLayout(3)), memory.ErrOutOfMemory, "more than the limit")
	require.NoError(t, away.SetLayout(farLayout(2)))
	fake.Plant("NewEvent", 2, driver.ErrOutOfMemory)
	require.ErrorIs(t, away.Start(2), driver.ErrOutOfMemory)
	require.NoError(t, away.Start(2))
	b := allocated(t, dev, memory.Saved, kernels.Float32, n)
	require.NoError(t, dev.Zero(b))
	away.SetPlace(0)
	fake.Plant("CopyOut", 1, driver.ErrLost)
	_, err = away.Store(b)
	require.ErrorIs(t, err, driver.ErrLost)
	away.Stop()
	away.Reclaim(0)
	require.Zero(t, away.Live())
	require.ErrorIs(t, away.Close(), driver.ErrLost)
	require.ErrorIs(t, dev.Close(), driver.ErrLost)
}
