package cuda_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/ptx"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/kernels/cuda"
	"github.com/weir-ml/weir/kernels/cuda/driver"
	"github.com/weir-ml/weir/kernels/kerneltest"
	"github.com/weir-ml/weir/memory"
)

// immediate is a driver whose work is done when it is queued, on the interpreter.
type immediate struct {
	driver.Driver
	device  *cuda.Device
	mem     map[driver.Addr][]byte
	next    driver.Addr
	modules []*ptx.Module
	kernels []*ptx.Kernel
	regions map[memory.Handle]*ptx.Region
	scratch *ptx.Region
	seed    uint64
}

var parsed = map[string]*ptx.Module{}

func (d *immediate) Facts() driver.Facts {
	return driver.Facts{Name: "immediate", Major: 8, Processors: 1, SharedPerBlock: 48 << 10, Total: 64 << 20, Page: 1 << 16}
}
func (d *immediate) Reserve(bytes int64) (driver.Addr, error) {
	d.next += 1 << 32
	d.mem[d.next] = make([]byte, bytes)
	return d.next, nil
}
func (d *immediate) Unreserve(at driver.Addr, bytes int64) error { return nil }
func (d *immediate) Map(driver.Addr, int64, int64) error         { return nil }
func (d *immediate) Unmap(driver.Addr, int64, int64) error       { return nil }
func (d *immediate) HostAlloc(n int) ([]byte, error)             { return make([]byte, n), nil }
func (d *immediate) HostFree([]byte) error                       { return nil }
func (d *immediate) at(a driver.Addr) []byte {
	for base, m := range d.mem {
		if uint64(a-base) < uint64(len(m)) {
			return m[a-base:]
		}
	}
	panic("no memory")
}
func (d *immediate) mark(a driver.Addr, n int64) {
	r, err := d.Region(uint64(a))
	if err != nil {
		panic(err)
	}
	for i := range r.Written[uint64(a)-r.Base:][:n] {
		r.Written[uint64(a)-r.Base+uint64(i)] = 1
	}
}
func (d *immediate) CopyIn(s driver.Stream, to driver.Addr, from []byte) error {
	d.mark(to, int64(len(from)))
	copy(d.at(to), from)
	return nil
}
func (d *immediate) CopyOut(s driver.Stream, to []byte, from driver.Addr) error {
	copy(to, d.at(from))
	return nil
}
func (d *immediate) Copy(s driver.Stream, to, from driver.Addr, n int64) error {
	d.mark(to, n)
	copy(d.at(to)[:n], d.at(from))
	return nil
}
func (d *immediate) Fill(s driver.Stream, to driver.Addr, v byte, n int64) error {
	d.mark(to, n)
	for i := range d.at(to)[:n] {
		d.at(to)[i] = v
	}
	return nil
}
func (d *immediate) NewStream() (driver.Stream, error)        { return 1, nil }
func (d *immediate) FreeStream(driver.Stream) error           { return nil }
func (d *immediate) Sync(driver.Stream) error                 { return nil }
func (d *immediate) NewEvent() (driver.Event, error)          { return 1, nil }
func (d *immediate) FreeEvent(driver.Event) error             { return nil }
func (d *immediate) Record(driver.Event, driver.Stream) error { return nil }
func (d *immediate) Wait(driver.Stream, driver.Event) error   { return nil }
func (d *immediate) Done(driver.Event) error                  { return nil }
func (d *immediate) Unload(driver.Module) error               { return nil }
func (d *immediate) Close() error                             { return nil }
func (d *immediate) Load(text string) (driver.Module, error) {
	m := parsed[text]
	if m == nil {
		var err error
		if m, err = ptx.Parse([]byte(text)); err != nil {
			return 0, err
		}
		parsed[text] = m
	}
	d.modules = append(d.modules, m)
	return driver.Module(len(d.modules)), nil
}
func (d *immediate) Function(m driver.Module, name string) (driver.Function, error) {
	d.kernels = append(d.kernels, d.modules[m-1].Kernel(name))
	return driver.Function(len(d.kernels)), nil
}
func (d *immediate) Launch(s driver.Stream, f driver.Function, l driver.Launch) error {
	k := d.kernels[f-1]
	params, err := k.Pack(l.Args)
	if err != nil {
		return err
	}
	three := func(x [3]uint32) [3]int { return [3]int{int(x[0]), int(x[1]), int(x[2])} }
	d.seed++
	return k.Launch(d, three(l.Grid), three(l.Block), int(l.Shared), params, d.seed)
}

func (d *immediate) Region(address uint64) (*ptx.Region, error) {
	base := driver.Addr(1 << 32)
	if address >= uint64(base)*2 {
		if d.scratch == nil {
			d.scratch = &ptx.Region{Base: uint64(base) * 2, Data: d.mem[base*2], Written: make([]byte, len(d.mem[base*2]))}
		}
		return d.scratch, nil
	}
	for info := range d.device.All() {
		off, bytes, err := d.device.Extent(kernels.Buffer{Handle: info.Handle})
		if err != nil {
			return nil, err
		}
		if address-uint64(base)-uint64(off) < uint64(bytes) {
			r := d.regions[info.Handle]
			if r == nil {
				r = &ptx.Region{Base: uint64(base) + uint64(off), Data: d.mem[base][off:][:bytes], Written: make([]byte, bytes)}
				d.regions[info.Handle] = r
			}
			return r, nil
		}
	}
	return nil, errors.New("no live buffer")
}

func open(t *testing.T) kernels.Compute {
	d := &immediate{mem: map[driver.Addr][]byte{}, regions: map[memory.Handle]*ptx.Region{}}
	dev, err := cuda.Open(d, cuda.Config{Capacity: 32 << 20})
	require.NoError(t, err)
	d.device = dev
	return dev
}

// The device passes what any device must, on the interpreter: every access of every kernel is
// checked, and warps and blocks run in an order by seed. All operations that package kernels
// has are launched, and nine in ten of their instructions run at least.
func TestConformance(t *testing.T) {
	kerneltest.Run(t, open)
	t.Run("wide heads", wideHeads)
	t.Run("many rows", manyRows)
	launches, ran, all := 0, 0, 0
	for _, m := range parsed {
		for _, k := range m.Kernels {
			r, a, missed, n := k.Coverage()
			require.Positive(t, n, "%s was never launched", k.Name)
			require.GreaterOrEqual(t, 100*r, 90*a, "%s: lines %v of its PTX never ran", k.Name, missed)
			launches, ran, all = launches+n, ran+r, all+a
		}
	}
	t.Logf("%d launches, %d of %d instructions of PTX", launches, ran, all)
}

// filled allocates a buffer with numbers that are the same on every device.
func filled(t *testing.T, d kernels.Compute, n int, seed uint64) kernels.Buffer {
	rng := rand.New(rand.NewPCG(seed, 0))
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(rng.NormFloat64())
	}
	b, err := d.Alloc(memory.Saved, kernels.Float32, n)
	require.NoError(t, err)
	require.NoError(t, d.WriteFloat32(b, x))
	return b
}

func content(t *testing.T, d kernels.Compute, b kernels.Buffer) []float32 {
	x := make([]float32, b.N)
	require.NoError(t, d.ReadFloat32(x, b))
	return x
}

func host(t *testing.T) *kernels.Host {
	h, err := kernels.NewHost(kernels.HostConfig{Capacity: 64 << 20, Instructions: kernels.Portable})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, h.Close()) })
	return h
}

// wideHeads compares heads of as many elements as the kernels have room for with the host's.
func wideHeads(t *testing.T) {
	const tokens, heads, dim = 21, 1, 128
	results := func(d kernels.Compute) (all []float32) {
		forward, backward := d.AttentionWorkspace(tokens, heads, dim)
		op := kernels.CausalAttention{
			QKV: filled(t, d, 3*tokens*heads*dim, 1), Out: filled(t, d, tokens*heads*dim, 2), LSE: filled(t, d, tokens*heads, 3),
			Workspace: filled(t, d, forward, 4), Tokens: tokens, Heads: heads, HeadDim: dim,
		}
		require.NoError(t, d.CausalAttention(op))
		back := kernels.CausalAttentionBackward{
			DOut: filled(t, d, tokens*heads*dim, 5), QKV: op.QKV, Out: op.Out, LSE: op.LSE, DQKV: filled(t, d, 3*tokens*heads*dim, 6),
			Workspace: filled(t, d, backward, 7), Tokens: tokens, Heads: heads, HeadDim: dim,
		}
		require.NoError(t, d.CausalAttentionBackward(back))
		return slices.Concat(content(t, d, op.Out), content(t, d, op.LSE), content(t, d, back.DQKV))
	}
	d := open(t)
	got, want := results(d), results(host(t))
	for i := range want {
		require.InDelta(t, want[i], got[i], 2e-5, "element %d", i)
	}
	forward, backward := d.AttentionWorkspace(tokens, heads, dim+1)
	require.Equal(t, []int{math.MaxInt, math.MaxInt}, []int{forward, backward})
	op := kernels.CausalAttention{
		QKV: filled(t, d, 3*129, 1), Out: filled(t, d, 129, 2), LSE: filled(t, d, 1, 3), Workspace: filled(t, d, 1, 4),
		Tokens: 1, Heads: 1, HeadDim: 129,
	}
	require.Error(t, d.CausalAttention(op))
	require.NoError(t, d.Close())
}

// manyRows compares sums and draws with the host's to the bit.
func manyRows(t *testing.T) {
	const n = 1 << 14
	key := kernels.Key{Seed: 1 << 40, Step: 5, Microbatch: 1 << 33, Op: kernels.OpKey("weights")}
	results := func(d kernels.Compute) (all []float32) {
		x, y := filled(t, d, n, 1), filled(t, d, n, 2)
		require.NoError(t, d.Normal(x, 0.02, key))
		require.NoError(t, d.Dropout(y, y, 0.3, key))
		weight, m, v := filled(t, d, n, 3), filled(t, d, n, 4), filled(t, d, n, 5)
		require.NoError(t, d.AddRow(weight, m, 1, n))
		require.NoError(t, d.Copy(v, x))
		require.NoError(t, d.Zero(m))
		require.NoError(t, d.SumRows(m, y, 1, n, true))
		return slices.Concat(content(t, d, x), content(t, d, y), content(t, d, weight), content(t, d, v), content(t, d, m))
	}
	d := open(t)
	got, want := results(d), results(host(t))
	for i := range want {
		require.Equal(t, math.Float32bits(want[i]), math.Float32bits(got[i]), "element %d: %v and %v", i, want[i], got[i])
	}
	require.NoError(t, d.Close())
}
