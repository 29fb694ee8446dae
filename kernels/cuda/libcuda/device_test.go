//go:build cuda

package libcuda_test

import (
	"bytes"
	"flag"
	"fmt"
	"math"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/kernels/cuda"
	"github.com/weir-ml/weir/kernels/cuda/cublas"
	"github.com/weir-ml/weir/kernels/cuda/libcuda"
	"github.com/weir-ml/weir/kernels/kerneltest"
	"github.com/weir-ml/weir/memory"
)

// These tests need a GPU; kernels/cuda/gpu.sh runs them.

var watch = flag.String("watch", "", "`file` until whose end TestWatch samples the free memory")

func open(t testing.TB, cfg cuda.Config) (*libcuda.Driver, *cuda.Device) {
	d, err := libcuda.Open(0)
	require.NoError(t, err)
	dev, err := cuda.Open(d, cfg)
	require.NoError(t, err)
	return d, dev
}

// The device passes the conformance suite.
func TestConformance(t *testing.T) {
	for _, c := range kerneltest.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			_, dev := open(t, cuda.Config{Capacity: 1 << 30})
			require.NoError(t, c.Check(dev))
			require.NoError(t, dev.Close())
		})
	}
}

// ways returns a device for each setting of Products and, if the system has cuBLAS, another one
// that uses it.
func ways(t testing.TB) (names []string, devices []*cuda.Device) {
	for _, products := range []cuda.Products{cuda.Float32, cuda.BFloat16} {
		name := [...]string{"float32", "bfloat16"}[products]
		_, dev := open(t, cuda.Config{Capacity: 4 << 30, Products: products})
		names, devices = append(names, name), append(devices, dev)
		d, err := libcuda.Open(0)
		require.NoError(t, err)
		library, err := cublas.Open(d, "")
		if err != nil {
			fmt.Println("no cuBLAS:", err)
			require.NoError(t, d.Close())
			continue
		}
		dev, err = cuda.Open(d, cuda.Config{Capacity: 4 << 30, Products: products, Library: library})
		require.NoError(t, err)
		names, devices = append(names, "cublas, "+name), append(devices, dev)
	}
	return names, devices
}

// Every setting is correct within its bound. The test prints the TFLOP/s of the best of five
// runs.
func TestProducts(t *testing.T) {
	names, devices := ways(t)
	fmt.Println("| M × N × K | TransA | TransB | TFLOP/s |\n|---|---|---|---|")
	host, err := kernels.NewHost(kernels.HostConfig{})
	require.NoError(t, err)
	for _, s := range [][3]int{{129, 65, 70}, {512, 1024, 1024}, {512, 4096, 1024}, {4096, 4096, 4096}} {
		for form := range 3 {
			op := kernels.MatMul{M: s[0], N: s[1], K: s[2], TransA: form == 1, TransB: form == 2}
			row := fmt.Sprintf("| %d × %d × %d | %t | %t |", op.M, op.N, op.K, op.TransA, op.TransB)
			for i, dev := range devices {
				alloc := func(d kernels.Device, n int) kernels.Buffer {
					b, err := d.Alloc(memory.Saved, kernels.Float32, n)
					require.NoError(t, err)
					return b
				}
				mark := dev.Mark()
				op := op
				op.A, op.B, op.C = alloc(dev, op.M*op.K), alloc(dev, op.K*op.N), alloc(dev, op.M*op.N)
				require.NoError(t, dev.Normal(op.A, 1, kernels.Key{Seed: 1}))
				require.NoError(t, dev.Normal(op.B, 1, kernels.Key{Seed: 2}))
				best := time.Duration(math.MaxInt64)
				for range 5 {
					require.NoError(t, dev.Sync())
					begin := time.Now()
					for range 10 {
						require.NoError(t, dev.MatMul(op))
					}
					require.NoError(t, dev.Sync())
					best = min(best, time.Since(begin)/10)
				}
				row += fmt.Sprintf(" %s %.2f", names[i], 2*float64(op.M)*float64(op.N)*float64(op.K)/best.Seconds()/1e12)
				if form == 0 && op.M <= 512 && op.N <= 1024 {
					got := make([]float32, op.C.N)
					require.NoError(t, dev.ReadFloat32(got, op.C))
					hostMark := host.Mark()
					same := op
					same.A, same.B, same.C = alloc(host, op.M*op.K), alloc(host, op.K*op.N), alloc(host, op.M*op.N)
					require.NoError(t, host.Normal(same.A, 1, kernels.Key{Seed: 1}))
					require.NoError(t, host.Normal(same.B, 1, kernels.Key{Seed: 2}))
					require.NoError(t, host.MatMul(same))
					want := make([]float32, op.C.N)
					require.NoError(t, host.ReadFloat32(want, same.C))
					host.Reclaim(hostMark)
					bound := float64(op.K) * 0x1p-22
					if i >= len(names)/2 {
						bound = math.Sqrt(float64(op.K)) * 0x1p-5
					}
					for j := range want {
						require.InDelta(t, want[j], got[j], bound, "%s, element %d", names[i], j)
					}
				}
				dev.Reclaim(mark)
			}
			fmt.Println(row + " |")
		}
	}
	for _, dev := range devices {
		require.NoError(t, dev.Close())
	}
	require.NoError(t, host.Close())
}

// Pages are unmapped and mapped again at the same addresses, according to the driver's own
// figure. The test prints the times.
func TestRefit(t *testing.T) {
	d, dev := open(t, cuda.Config{})
	before, total, err := d.MemInfo()
	require.NoError(t, err)
	gib := min(int64(8), before>>31) << 30 // at most half of the free memory
	weights, err := dev.Alloc(memory.Resident, kernels.Float32, int(gib/4/4))
	require.NoError(t, err)
	require.NoError(t, dev.Normal(weights, 1, kernels.Key{Seed: 1}))
	want, got := make([]float32, weights.N), make([]float32, weights.N)
	require.NoError(t, dev.ReadFloat32(want, weights))
	step := &memory.Layout{Height: gib, Places: []int32{0}}
	fmt.Printf("| of %d GiB, weights %d MiB and a step of %d MiB | time | free by cuMemGetInfo |\n|---|---|---|\n", total>>30, gib>>22, gib>>20)
	timed := func(what string, do func() error) (free int64) {
		begin := time.Now()
		require.NoError(t, do(), what)
		took := time.Since(begin)
		free, _, err := d.MemInfo()
		require.NoError(t, err)
		fmt.Printf("| %s | %.1f ms | %d MiB |\n", what, took.Seconds()*1e3, free>>20)
		return free
	}
	var empty int64 // free memory when all pages are unmapped, less the memory that the first launch has taken
	for round := range 2 {
		laid := timed("pages of a step mapped", func() error { return dev.SetLayout(step) })
		require.LessOrEqual(t, laid, before-gib)
		require.NoError(t, dev.SetLayout(nil))
		timed("pages of a step handed back", func() error { return dev.ReleasePages(nil, memory.StepScope) })
		var file bytes.Buffer
		free := timed("weights copied out and handed back", func() error { return dev.ReleasePages(&file, memory.Weights) })
		if round == 0 {
			empty = free
			require.InDelta(t, before, empty, 256<<20, "nothing is left on the device")
		}
		require.Equal(t, empty, free, "nothing is left on the device")
		timed("weights restored", func() error { return dev.RestorePages(&file) })
		require.NoError(t, dev.ReadFloat32(got, weights))
		require.Equal(t, want, got)
	}
	require.NoError(t, dev.Close())
}

// TestWatch prints the least and the greatest amount of free memory while another process runs.
func TestWatch(t *testing.T) {
	if *watch == "" {
		t.Skip("for gpu.sh")
	}
	d, err := libcuda.Open(0)
	require.NoError(t, err)
	least, most, looked := int64(math.MaxInt64), int64(0), 0
	for {
		if _, err := os.Stat(*watch); err != nil {
			break
		}
		free, _, err := d.MemInfo()
		require.NoError(t, err)
		least, most, looked = min(least, free), max(most, free), looked+1
		time.Sleep(100 * time.Millisecond)
	}
	fmt.Printf("free by cuMemGetInfo: %d to %d bytes, looked at %d times\n", least, most, looked)
	require.NoError(t, d.Close())
}

// A buffer is copied from one GPU to another bit for bit, in any way that the machine supports.
func TestPeers(t *testing.T) {
	second, err := libcuda.Open(1)
	if err != nil {
		t.Skip(err)
	}
	to, err := cuda.Open(second, cuda.Config{Capacity: 1 << 30})
	require.NoError(t, err)
	first, from := open(t, cuda.Config{Capacity: 1 << 30})
	may, err := second.Peer(first)
	require.NoError(t, err)
	b, err := from.Alloc(memory.Activation, kernels.Float32, 64<<20)
	require.NoError(t, err)
	require.NoError(t, from.Normal(b, 1, kernels.Key{Seed: 1}))
	require.NoError(t, from.Sync())
	begin := time.Now()
	copied, err := to.Receive(from, b)
	require.NoError(t, err)
	require.NoError(t, to.Sync())
	fmt.Printf("256 MiB from GPU 0 to 1, directly %t: %v\n", may, time.Since(begin))
	want, got := make([]float32, b.N), make([]float32, b.N)
	require.NoError(t, from.ReadFloat32(want, b))
	require.NoError(t, to.ReadFloat32(got, copied))
	require.Equal(t, want, got)
	require.NoError(t, to.Close())
	require.NoError(t, from.Close())
}
