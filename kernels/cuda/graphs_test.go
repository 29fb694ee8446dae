package cuda_test

import (
	"errors"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/kernels/cuda"
	"github.com/weir-ml/weir/kernels/cuda/driver"
	"github.com/weir-ml/weir/kernels/cuda/internal/fakecuda"
	"github.com/weir-ml/weir/memory"
)

// actions runs a planned step of count actions: each adds 5·(number + element) to sum, with
// five kernels that read one new entry.
func actions(dev *cuda.Device, sum kernels.Buffer, count int) (err error) {
	if err := dev.SetLayout(layout); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			dev.Reclaim(0)
		}
		err = errors.Join(err, dev.SetLayout(nil))
	}()
	x := make([]float32, n)
	for a := range count {
		dev.SetPlace(0)
		for i := range x {
			x[i] = float32(a + i)
		}
		b, err := dev.Alloc(memory.Entry, kernels.Float32, n)
		if err != nil {
			return err
		}
		if err := dev.WriteFloat32(b, x); err != nil {
			return err
		}
		for range 5 {
			if err := dev.Axpy(sum, b, uint64(math.Float32bits(1)), n); err != nil {
				return err
			}
		}
		if _, err := dev.Release(b); err != nil {
			return err
		}
	}
	return nil
}

func newSum(t *testing.T, dev *cuda.Device) kernels.Buffer {
	return put(t, dev, memory.Resident, make([]float32, n))
}

func requireSum(t *testing.T, dev *cuda.Device, sum kernels.Buffer, count int) {
	got := make([]float32, n)
	require.NoError(t, dev.ReadFloat32(got, sum))
	for i, g := range got {
		require.Equal(t, float32(5*(count*(count-1)/2+count*i)), g, "element %d", i)
	}
}

// An action that recurs becomes a graph, in whatever order the streams run; copies in and reads
// keep their positions before and after it. Releasing and restoring pages destroys the graphs.
func TestGraphs(t *testing.T) {
	for seed := range uint64(30) {
		fake := fakecuda.New(seed, 64*page, page)
		dev := openFake(t, fake, fake)
		sum := newSum(t, dev)
		const count = 7
		require.NoError(t, actions(dev, sum, count), "seed %d", seed)
		requireSum(t, dev, sum, count)
		require.Equal(t, 1, fake.Calls("Capture"))
		require.Equal(t, count-1, fake.Calls("LaunchGraph"))
		require.Equal(t, 5+5, fake.Calls("Launch"), "the first action, and the capture")
		require.Equal(t, 5*count, fake.Launches())
		if seed == 0 {
			require.NoError(t, dev.ReleasePages(nil, memory.StepScope))
			require.Equal(t, 1, fake.Calls("FreeGraph"))
			require.NoError(t, dev.RestorePages(nil))
			require.NoError(t, dev.WriteFloat32(sum, make([]float32, n)))
			require.NoError(t, actions(dev, sum, count))
			requireSum(t, dev, sum, count)
			require.Equal(t, 2, fake.Calls("Capture"))
		}
		require.NoError(t, dev.Close())
	}
}

// If making or launching a graph fails, the step fails, at the latest with the following call;
// the next step is correct.
func TestGraphFailures(t *testing.T) {
	for call, nth := range map[string]int{"Capture": 1, "LaunchGraph": 2, "Launch": 3, "Defer": 12, "FreeGraph": 1} {
		fake := fakecuda.New(1, 64*page, page)
		dev := openFake(t, fake, fake)
		sum := newSum(t, dev)
		fake.Plant(call, nth, driver.ErrOutOfMemory)
		err := actions(dev, sum, 4)
		if call == "FreeGraph" {
			require.NoError(t, err)
			require.ErrorIs(t, dev.Close(), driver.ErrOutOfMemory)
			continue
		}
		require.ErrorIs(t, err, driver.ErrOutOfMemory, call)
		require.NoError(t, dev.Sync())
		require.NoError(t, dev.WriteFloat32(sum, make([]float32, n)))
		require.NoError(t, actions(dev, sum, 4), call)
		requireSum(t, dev, sum, 4)
		require.NoError(t, dev.Close())
	}
}

// The driver in Go checks that a graph consists of the announced pieces, and that its buffers
// are live.
func TestGraphsAreChecked(t *testing.T) {
	const compute = driver.Stream(1)
	fake := fakecuda.New(1, 64*page, page)
	dev := openFake(t, fake, fake)
	x := allocated(t, dev, memory.Saved, kernels.Float32, n)
	y := allocated(t, dev, memory.Saved, kernels.Float32, n)
	toX, err := dev.Address(x)
	require.NoError(t, err)
	toY, err := dev.Address(y)
	require.NoError(t, err)
	fill := func() error { return fake.Fill(compute, driver.Addr(toX), 1, 4*n) }
	_, err = fake.Capture(compute, func() error {
		require.ErrorIs(t, fake.Sync(compute), driver.ErrInvalid)
		return fill()
	})
	require.ErrorContains(t, err, "has ended the capture")
	graph, err := fake.Capture(compute, func() error {
		_, err := fake.Capture(compute, func() error { return nil })
		require.ErrorIs(t, err, driver.ErrInvalid)
		return fill()
	})
	require.NoError(t, err)
	read := func() float32 {
		got := make([]float32, 1)
		require.NoError(t, dev.ReadFloat32(got, x))
		return got[0]
	}
	require.NoError(t, dev.Zero(x))
	require.Zero(t, read(), "a capture runs nothing")
	require.NoError(t, fake.LaunchGraph(compute, graph))
	require.Equal(t, math.Float32frombits(0x01010101), read())

	require.NoError(t, fake.Defer(compute, []uint64{toY}))
	require.ErrorContains(t, fake.LaunchGraph(compute, graph), "none of those that Defer announced")
	require.NoError(t, fake.Defer(compute, []uint64{toX}))
	_, err = dev.Release(x)
	require.NoError(t, err)
	require.NoError(t, fake.LaunchGraph(compute, graph), "x was live when it was said")
	require.ErrorContains(t, fake.LaunchGraph(compute, graph), "no live buffer")
	require.ErrorContains(t, fake.Defer(compute, []uint64{toX}), "no live buffer")
	require.NoError(t, fake.FreeGraph(graph))
	require.ErrorIs(t, fake.LaunchGraph(compute, graph), driver.ErrInvalid)
	require.NoError(t, dev.Close())
}

// idle is a driver that queues nothing.
type idle struct{ driver.Driver }

func (idle) Launch(driver.Stream, driver.Function, driver.Launch) error { return nil }
func (idle) LaunchGraph(driver.Stream, driver.Graph) error              { return nil }
func (idle) Defer(driver.Stream, []uint64) error                        { return nil }

// An action that is a graph allocates nothing on the Go heap (L11).
func TestGraphsAllocateNothing(t *testing.T) {
	fake := fakecuda.New(1, 64*page, page)
	dev := openFake(t, fake, fake)
	sum := newSum(t, dev)
	require.NoError(t, dev.SetLayout(layout))
	action := func() {
		dev.SetPlace(0)
		for range 6 {
			_ = dev.Axpy(sum, sum, 0, n)
		}
	}
	for range 3 {
		action()
	}
	was := dev.Driver(idle{fake})
	require.Zero(t, testing.AllocsPerRun(100, action))
	dev.SetPlace(0)
	dev.Driver(was)
	require.Positive(t, fake.Calls("LaunchGraph"))
	require.NoError(t, dev.SetLayout(nil))
	require.NoError(t, dev.Close())
}
