package cuda_test

import (
	"bytes"
	"errors"
	"math"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/kernels/cuda"
	"github.com/weir-ml/weir/kernels/cuda/driver"
	"github.com/weir-ml/weir/kernels/cuda/internal/fakecuda"
	"github.com/weir-ml/weir/memory"
)

const page = 4096

// openFake returns a device of driver as, which is fake or wraps it, with the kernels of package
// ptx's tests.
func openFake(t *testing.T, fake *fakecuda.Driver, as driver.Driver) *cuda.Device {
	t.Helper()
	text, err := os.ReadFile("internal/ptx/testdata/kernels.ptx")
	require.NoError(t, err)
	dev := opened(t, as, cuda.Config{Capacity: 64 * page, Modules: []string{string(text)}})
	fake.Follow(dev.All)
	return dev
}

var memoryCalls = []string{"Reserve", "Unreserve", "Map", "Unmap", "HostAlloc", "HostFree"}

// n is the number of elements of a buffer in a step: less than a page.
const n = 300

// layout has one buffer, whose memory all microbatches use in turn, so that each copy overwrites
// memory that a kernel has just read.
var layout = &memory.Layout{
	Height: 2 * page, Places: []int32{0, 1}, Levels: make([]memory.Level, 1),
	Allocations: []memory.Allocation{{Offset: 256, Bytes: 4 * n, Class: memory.Entry}},
}

// steps runs a step of several microbatches. It writes each of them to a new entry x, and adds 2·x
// to sum in two of three microbatches. It returns the number of calls for memory and of waits.
func steps(fake *fakecuda.Driver, dev *cuda.Device, sum kernels.Buffer, microbatches int) (asked, waited int, err error) {
	if err := dev.SetLayout(layout); err != nil {
		return 0, 0, err
	}
	asked, waited = fake.Calls(memoryCalls...), fake.Calls("Sync", "Done")
	x := make([]float32, n)
	for mb := range microbatches {
		dev.SetPlace(0)
		for i := range x {
			x[i] = float32(mb + i)
		}
		b, err := dev.Alloc(memory.Entry, kernels.Float32, n)
		if err != nil {
			return 0, 0, err
		}
		err = dev.WriteFloat32(b, x)
		clear(x)      // it was copied
		if mb%3 > 0 { // no kernel reads the other entries
			err = errors.Join(err, dev.Axpy(sum, b, uint64(math.Float32bits(2)), n))
		}
		_, released := dev.Release(b)
		if err := errors.Join(err, released); err != nil {
			return 0, 0, err
		}
	}
	asked, waited = fake.Calls(memoryCalls...)-asked, fake.Calls("Sync", "Done")-waited
	return asked, waited, dev.SetLayout(nil)
}

// right reports whether sum has the value that steps should have computed.
func right(dev *cuda.Device, sum kernels.Buffer, microbatches int) (bool, error) {
	got := make([]float32, n)
	err := dev.ReadFloat32(got, sum)
	for i, g := range got {
		var want float32
		for mb := range microbatches {
			if mb%3 > 0 {
				want += 2 * float32(mb+i)
			}
		}
		if g != want {
			return false, err
		}
	}
	return true, err
}

// In every order that the events allow, kernels and copies that use one address one after
// another do not overlap. A step makes no call for memory, and waits only for a free slot to
// copy from.
func TestQueues(t *testing.T) {
	for seed := range uint64(60) {
		fake := fakecuda.New(seed, 64*page, page)
		dev := openFake(t, fake, fake)
		sum := put(t, dev, memory.Resident, make([]float32, n))
		asked, waited, err := steps(fake, dev, sum, 30)
		require.NoError(t, err, "seed %d", seed)
		require.Zero(t, asked)
		require.Equal(t, 30, waited, "a copy waits for the previous copy in its slot")
		ok, err := right(dev, sum, 30)
		require.NoError(t, err, "seed %d", seed)
		require.True(t, ok, "seed %d", seed)
		require.NoError(t, dev.Close())
		free, total, _ := fake.MemInfo()
		require.Equal(t, total, free)
	}
}

// forgetful is a driver that drops the waits of one stream.
type forgetful struct {
	driver.Driver
	into driver.Stream
}

func (f forgetful) Wait(s driver.Stream, e driver.Event) error {
	if s == f.into {
		return nil
	}
	return f.Driver.Wait(s, e)
}

// Every wait is necessary: without the waits of the stream of kernels, of copies in or of
// copies out, some order gives a wrong result, and the test detects it.
func TestMissingEdges(t *testing.T) {
	for stream := driver.Stream(1); stream <= 3; stream++ {
		found := 0
		for seed := range uint64(20) {
			fake := fakecuda.New(seed, 64*page, page)
			dev := openFake(t, fake, forgetful{fake, stream})
			sum := allocated(t, dev, memory.Resident, kernels.Float32, n)
			err := dev.WriteFloat32(sum, make([]float32, n))
			if err == nil {
				_, _, err = steps(fake, dev, sum, 30)
			}
			ok := false
			if err == nil {
				ok, err = right(dev, sum, 30)
			}
			if !ok || err != nil {
				found++
			}
			_ = dev.Close()
		}
		require.Positive(t, found, "into stream %d", stream)
	}
}

// Pages are released and restored at the same addresses, with their contents.
func TestReleaseAndRestore(t *testing.T) {
	fake := fakecuda.New(1, 24*page, page)
	dev := openFake(t, fake, fake)
	all, _, err := fake.MemInfo()
	require.NoError(t, err)
	weight := allocated(t, dev, memory.Resident, kernels.Float32, 3*page/4)
	want := make([]float32, weight.N)
	for i := range want {
		want[i] = float32(i)
	}
	require.NoError(t, dev.WriteFloat32(weight, want))
	at, err := dev.Address(weight)
	require.NoError(t, err)

	for range 2 {
		require.NoError(t, dev.SetLayout(layout))
		require.NoError(t, dev.SetLayout(nil))
		var file bytes.Buffer
		require.NoError(t, dev.ReleasePages(&file, memory.StepScope, memory.Weights))
		free, _, err := fake.MemInfo()
		require.NoError(t, err)
		require.Equal(t, all, free)
		require.ErrorIs(t, dev.WriteFloat32(weight, want), memory.ErrReleased)
		fake.Plant("Map", 1, driver.ErrOutOfMemory)
		err = dev.RestorePages(bytes.NewReader(file.Bytes()))
		require.ErrorIs(t, err, memory.ErrOutOfMemory)
		require.NoError(t, dev.RestorePages(&file))
		same, err := dev.Address(weight)
		require.NoError(t, err)
		require.Equal(t, at, same)
		require.Equal(t, want, content(t, dev, weight))
	}
	require.NoError(t, dev.Close())
}

// The device reports too little memory before the step, rejected PTX, an address that belongs to no
// buffer, and a device that is lost during a step.
func TestFailures(t *testing.T) {
	fake := fakecuda.New(1, 16*page, page)
	dev := openFake(t, fake, fake)
	all, _, err := fake.MemInfo()
	require.NoError(t, err)
	big := &memory.Layout{Height: 20 * page, Places: []int32{0}}
	err = dev.SetLayout(big)
	require.ErrorIs(t, err, memory.ErrOutOfMemory)
	require.ErrorIs(t, err, driver.ErrOutOfMemory)
	require.ErrorContains(t, err, "81920 bytes for a step")
	free, _, err := fake.MemInfo()
	require.NoError(t, err)
	require.Equal(t, all, free, "no part of it is kept")

	sum := put(t, dev, memory.Resident, make([]float32, n))
	require.ErrorIs(t, dev.WriteInt32(sum, []int32{1}), kernels.ErrShape)
	require.ErrorIs(t, dev.WriteFloat32(sum, make([]float32, n+1)), kernels.ErrShape)
	gone := allocated(t, dev, memory.Saved, kernels.Float32, n)
	_, err = dev.Release(gone)
	require.NoError(t, err)
	require.ErrorIs(t, dev.Axpy(sum, gone, 0, n), memory.ErrStale)

	fresh := allocated(t, dev, memory.Saved, kernels.Float32, n)
	require.NoError(t, dev.Axpy(sum, fresh, 0, n))
	err = dev.Sync()
	require.ErrorIs(t, err, driver.ErrLost)
	require.ErrorContains(t, err, "axpy: line", "a kernel reads memory that was never written")
	require.ErrorIs(t, dev.WriteFloat32(sum, []float32{1}), driver.ErrLost)
	require.Positive(t, dev.Reclaim(0))
	require.ErrorIs(t, dev.Close(), driver.ErrLost)

	fake = fakecuda.New(1, 16*page, page)
	dev = openFake(t, fake, fake)
	sum = put(t, dev, memory.Resident, make([]float32, n))
	fake.Plant("Launch", 5, driver.ErrLost)
	_, _, err = steps(fake, dev, sum, 30)
	require.ErrorIs(t, err, driver.ErrLost)
	require.ErrorIs(t, dev.Close(), driver.ErrLost)

	_, err = cuda.Open(fakecuda.New(1, 8*page, page), cuda.Config{Modules: []string{".entry f(\n)\n{\n\tfrobnicate.b32 \t%r1, 1;\n}\n"}})
	require.ErrorIs(t, err, driver.ErrRefused)
	require.ErrorContains(t, err, "line 4")
	for _, call := range []string{"NewStream", "NewEvent", "HostAlloc", "Load", "Function", "Reserve"} {
		fake := fakecuda.New(1, 8*page, page)
		fake.Plant(call, 1, driver.ErrOutOfMemory)
		_, err = cuda.Open(fake, cuda.Config{Modules: []string{".visible .entry f(\n)\n{\n\tret;\n}\n"}})
		require.ErrorIs(t, err, driver.ErrOutOfMemory, call)
		require.Equal(t, 1, fake.Calls("Close"), call)
	}
}

func mustReceive(t *testing.T, to, from *cuda.Device, b kernels.Buffer) kernels.Buffer {
	copied, err := to.Receive(from, b)
	require.NoError(t, err)
	return copied
}

func (f forgetful) Peer(from driver.Driver) (bool, error) {
	return f.Driver.Peer(from.(forgetful).Driver)
}

func (f forgetful) CopyPeer(s driver.Stream, to driver.Addr, from driver.Driver, at driver.Addr, n int64) error {
	return f.Driver.CopyPeer(s, to, from.(forgetful).Driver, at, n)
}

// received sums on one device the results of another, microbatch by microbatch, at the same
// places of both. The given streams drop their waits; 0 stands for none.
func received(t *testing.T, seed uint64, intoFrom, intoTo driver.Stream) (sums []float32, err error) {
	machine := fakecuda.NewMachine(seed, 2, 64*page, page, [2]int{1, 0})
	from := openFake(t, machine[0], forgetful{machine[0], intoFrom})
	to := openFake(t, machine[1], forgetful{machine[1], intoTo})
	defer func() { err = errors.Join(err, from.Close(), to.Close()) }()
	one := allocated(t, from, memory.Resident, kernels.Float32, n)
	sum := allocated(t, to, memory.Resident, kernels.Float32, n)
	x, sums := make([]float32, n), make([]float32, n)
	arrives := *layout
	arrives.Allocations = []memory.Allocation{{Offset: 256, Bytes: 4 * n, Class: memory.Transfer}}
	err = errors.Join(from.WriteFloat32(one, ramp(n)), to.WriteFloat32(sum, x), from.SetLayout(layout), to.SetLayout(&arrives))
	for mb := 0; mb < 12 && err == nil; mb++ {
		from.SetPlace(0)
		to.SetPlace(0)
		b, failed := from.Alloc(memory.Entry, kernels.Float32, n)
		for i := range x {
			x[i] = float32(mb * i)
		}
		err = errors.Join(failed, from.WriteFloat32(b, x), from.Axpy(b, one, uint64(math.Float32bits(1)), n))
		if err != nil {
			break
		}
		c, failed := to.Receive(from, b)
		_, released := from.Release(b)
		if err = errors.Join(failed, released); err != nil {
			break
		}
		err = to.Axpy(sum, c, uint64(math.Float32bits(1)), n)
		_, released = to.Release(c)
		err = errors.Join(err, released)
	}
	require.True(t, err != nil || machine[1].Calls("CopyPeer") == 12, "not through the host")
	return sums, errors.Join(err, to.ReadFloat32(sums, sum))
}

// Copies between devices run after the kernels of both that come before them, and before
// buffers that reuse their places; every wait is necessary for that.
func TestPeers(t *testing.T) {
	want := make([]float32, n)
	for i := range want {
		want[i] = float32(66*i + 12*(i+1))
	}
	for seed := range uint64(20) {
		sums, err := received(t, seed, 0, 0)
		require.NoError(t, err, "seed %d", seed)
		require.Equal(t, want, sums, "seed %d", seed)
	}
	for _, into := range [][2]driver.Stream{{1, 0}, {0, 1}, {0, 2}} {
		found := 0
		for seed := range uint64(20) {
			if sums, err := received(t, seed, into[0], into[1]); err != nil || !slices.Equal(want, sums) {
				found++
			}
		}
		require.Positive(t, found, "%v", into)
	}
}

// Buffers can be sent to another device of the process, directly if the machine supports it,
// and as bytes that the host can decode too.
func TestTransfers(t *testing.T) {
	want := make([]float32, 5000)
	for i := range want {
		want[i] = float32(i) / 3
	}
	for seed := range uint64(10) {
		var peers [][2]int
		if seed%2 > 0 {
			peers = [][2]int{{1, 0}}
		}
		machine := fakecuda.NewMachine(seed, 2, 64*page, page, peers...)
		one, two := machine[0], machine[1]
		from, to := openFake(t, one, one), openFake(t, two, two)
		host, err := kernels.NewHost(kernels.HostConfig{})
		require.NoError(t, err)
		b := put(t, from, memory.Activation, want)
		onHost, err := host.Floats(memory.Activation, want...)
		require.NoError(t, err)

		var wire, hostWire bytes.Buffer
		require.NoError(t, from.Encode(&wire, b))
		require.NoError(t, host.Encode(&hostWire, onHost))
		require.Equal(t, hostWire.Bytes(), wire.Bytes())
		require.EqualValues(t, wire.Len(), from.Size(b))
		arrivals := []func() (kernels.Buffer, error){
			func() (kernels.Buffer, error) { return to.Receive(from, b) },
			func() (kernels.Buffer, error) { return to.Receive(host, onHost) },
			func() (kernels.Buffer, error) { return to.Decode(bytes.NewReader(wire.Bytes()), from.Size(b)) },
		}
		for i, arrive := range arrivals {
			copied, err := arrive()
			require.NoError(t, err)
			require.Equal(t, memory.Transfer, to.Class(copied))
			require.Equal(t, want, content(t, to, copied), "arrival %d", i)
			_, err = to.Release(copied)
			require.NoError(t, err)
		}
		require.Equal(t, len(peers), two.Calls("CopyPeer"))
		back, err := from.Receive(to, mustReceive(t, to, from, b))
		require.NoError(t, err)
		require.Equal(t, want, content(t, from, back), "the way back is through the host")
		require.Zero(t, one.Calls("CopyPeer"))
		to.Reclaim(0)
		_, err = to.Decode(bytes.NewReader(wire.Bytes()[:100]), from.Size(b))
		require.Error(t, err)
		_, err = to.Decode(bytes.NewReader(wire.Bytes()), from.Size(b)-4)
		require.ErrorIs(t, err, kernels.ErrShape)
		require.Zero(t, to.Live(), "the buffer is released after the failure")
		_, err = host.Receive(from, b)
		require.Error(t, err)
		require.NoError(t, errors.Join(from.Close(), to.Close(), host.Close()))
	}
}

// opened returns a device of a driver.
func opened(t require.TestingT, d driver.Driver, cfg cuda.Config) *cuda.Device {
	dev, err := cuda.Open(d, cfg)
	require.NoError(t, err)
	return dev
}

// allocated returns a buffer of a device that has room for it.
func allocated(t require.TestingT, dev kernels.Device, class memory.Class, dtype kernels.DType, n int) kernels.Buffer {
	b, err := dev.Alloc(class, dtype, n)
	require.NoError(t, err)
	return b
}
