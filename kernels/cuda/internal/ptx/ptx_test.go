package ptx_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/kernels/cuda/internal/ptx"
)

// memory is a small global memory: buffers with a gap after each, at addresses that are never
// reused.
type memory struct {
	regions []*ptx.Region
	gone    []*ptx.Region
	next    uint64
}

func (m *memory) alloc(bytes int, written bool) *ptx.Region {
	m.next += 1 << 20
	r := &ptx.Region{Base: m.next, Data: make([]byte, bytes), Written: make([]byte, bytes)}
	for i := range r.Written {
		if written {
			r.Written[i] = 1
		}
	}
	m.regions = append(m.regions, r)
	return r
}

func (m *memory) floats(x ...float32) *ptx.Region {
	r := m.alloc(4*len(x), true)
	for i, v := range x {
		binary.LittleEndian.PutUint32(r.Data[4*i:], math.Float32bits(v))
	}
	return r
}

func (m *memory) release(r *ptx.Region) {
	for i, other := range m.regions {
		if other == r {
			m.regions = append(m.regions[:i], m.regions[i+1:]...)
		}
	}
	m.gone = append(m.gone, r)
}

func (m *memory) Region(address uint64) (*ptx.Region, error) {
	for _, r := range m.regions {
		if address-r.Base < uint64(len(r.Data)) {
			return r, nil
		}
	}
	for _, r := range m.gone {
		if address-r.Base < uint64(len(r.Data)) {
			return nil, errors.New("use after release")
		}
	}
	return nil, errors.New("out of bounds of every buffer")
}

func float(r *ptx.Region, i int) float32 {
	return math.Float32frombits(binary.LittleEndian.Uint32(r.Data[4*i:]))
}

// packed returns parameters in PTX's layout.
func packed(params ...any) (b []byte) {
	put := func(size int, v uint64) {
		for len(b)%size != 0 {
			b = append(b, 0)
		}
		for i := range size {
			b = append(b, byte(v>>(8*i)))
		}
	}
	for _, p := range params {
		switch p := p.(type) {
		case *ptx.Region:
			put(8, p.Base)
		case uint64:
			put(8, p)
		case uint32:
			put(4, uint64(p))
		case float32:
			put(4, uint64(math.Float32bits(p)))
		}
	}
	return b
}

func source(t testing.TB) string {
	text, err := os.ReadFile("testdata/kernels.ptx")
	require.NoError(t, err)
	return string(text)
}

func draws(rng *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(rng.NormFloat64())
	}
	return x
}

func TestProduct(t *testing.T) {
	module := parsed(t, []byte(source(t)))
	rng := rand.New(rand.NewPCG(1, 2))
	for seed := range uint64(5) {
		const n = 19
		m := &memory{}
		x, y := draws(rng, n*n), draws(rng, n*n)
		a, b, c := m.floats(x...), m.floats(y...), m.alloc(4*n*n, false)
		k := module.Kernel("product")
		require.NoError(t, k.Launch(m, [3]int{3, 3, 1}, [3]int{8, 8, 1}, 0, packed(c, a, b, uint32(n)), seed))
		for i := range n {
			for j := range n {
				var sum float32
				for l := range n {
					sum = float32(math.FMA(float64(x[i*n+l]), float64(y[l*n+j]), float64(sum)))
				}
				require.InDelta(t, sum, float(c, i*n+j), 1e-6)
			}
		}
	}
	ran, all, missed, launches := module.Kernel("product").Coverage()
	require.Equal(t, []int{all, 5}, []int{ran + len(missed), launches})
	require.Empty(t, missed)
}

func TestRows(t *testing.T) {
	module := parsed(t, []byte(source(t)))
	for _, threads := range []int{1, 32, 128} {
		const rows, n = 5, 77
		m := &memory{}
		x := draws(rand.New(rand.NewPCG(3, 4)), rows*n)
		in, sums := m.floats(x...), m.alloc(8*rows, false)
		require.NoError(t, module.Kernel("rows").Launch(m, [3]int{rows, 1, 1}, [3]int{threads, 1, 1}, 8*threads, packed(sums, in, uint32(n)), 1))
		for r := range rows {
			var want float64
			for _, v := range x[r*n:][:n] {
				want += float64(v)
			}
			require.InDelta(t, want, math.Float64frombits(binary.LittleEndian.Uint64(sums.Data[8*r:])), 1e-12)
		}
	}
}

// Each bug is planted in a correct kernel, by another line or by other arguments, and is
// reported at the line of PTX at which it occurs.
func TestPlantedBugs(t *testing.T) {
	const n = 19
	text := source(t)
	type launch func(m *memory, module *ptx.Module, seed uint64) error
	product := func(m *memory, module *ptx.Module, seed uint64) error {
		rng := rand.New(rand.NewPCG(5, seed))
		a, b, c := m.floats(draws(rng, n*n)...), m.floats(draws(rng, n*n)...), m.alloc(4*n*n, false)
		return module.Kernel("product").Launch(m, [3]int{3, 3, 1}, [3]int{8, 8, 1}, 0, packed(c, a, b, uint32(n)), seed)
	}
	axpy := func(change func(m *memory, y, x *ptx.Region) []byte) launch {
		return func(m *memory, module *ptx.Module, seed uint64) error {
			x, y := m.floats(draws(rand.New(rand.NewPCG(5, seed)), 100)...), m.floats(make([]float32, 100)...)
			return module.Kernel("axpy").Launch(m, [3]int{4, 1, 1}, [3]int{32, 1, 1}, 0, change(m, y, x), seed)
		}
	}
	right := func(m *memory, y, x *ptx.Region) []byte { return packed(y, x, float32(2), uint32(100)) }
	rows := func(m *memory, module *ptx.Module, seed uint64) error {
		in, sums := m.floats(make([]float32, 5*77)...), m.alloc(40, false)
		return module.Kernel("rows").Launch(m, [3]int{5, 1, 1}, [3]int{64, 1, 1}, 64*8, packed(sums, in, uint32(77)), seed)
	}
	for _, bug := range []struct {
		name     string
		old, new string // in the text; the mark ‹ in new, or else mark, is the location of the fault
		mark     string
		reason   string
		run      launch
	}{
		{"a read out of bounds", "", "", "ld.global.f32 \t%f2, [%rd2]", "out of bounds", axpy(func(m *memory, y, x *ptx.Region) []byte {
			return packed(m.floats(make([]float32, 101)...), x, float32(2), uint32(101))
		})},
		{"a write out of bounds", "", "", "ld.global.f32 \t%f3, [%rd1]", "out of bounds", axpy(func(m *memory, y, x *ptx.Region) []byte {
			return packed(m.floats(make([]float32, 99)...), x, float32(2), uint32(100))
		})},
		{"no bound on the thread", "@%p1 bra \t$L__BB0_2;", "", "ld.global.f32 \t%f2, [%rd2]", "out of bounds", axpy(right)},
		{"a use after release", "", "", "ld.global.f32 \t%f2, [%rd2]", "use after release", axpy(func(m *memory, y, x *ptx.Region) []byte {
			m.release(x)
			return right(m, y, x)
		})},
		{"a stale read of global memory", "", "", "ld.global.f32 \t%f3, [%rd1]", "never written", axpy(func(m *memory, y, x *ptx.Region) []byte {
			return right(m, m.alloc(400, false), x)
		})},
		{"no barrier before the tile is read", "\tbar.sync \t0;\n\tmov.u64 \t%rd28, 0;", "\tmov.u64 \t%rd28, 0;", "ld.shared.f32", "", product},
		{"no barrier before the tile is written again", "\tbar.sync \t0;\n\tadd.s32 \t%r25, %r25, 8;", "\tadd.s32 \t%r25, %r25, 8;", "", "a race", product},
		{"a race in a sum by halves", "$L__BB2_10:                             //   in Loop: Header=BB2_8 Depth=1\n\tbar.sync \t0;", "$L__BB2_10:", "", "a race", rows},
		{"a stale read of shared memory", "st.shared.f32 \t[%rd5], %f18;", "", "ld.shared.f32 \t%f14, [%rd27]", "never written", product},
		{"a wrong stride in shared memory", "mul.wide.u32 \t%rd19, %r1, 32;", "mul.wide.u32 \t%rd19, %r1, 28;", "", "a race", product},
		{"a wrong stride in global memory", "mad.lo.s32 \t%r24, %r2, %r8, %r4;", "add.s32 \t%r24, %r2, %r4;", "st.global.f32 \t[%rd8], %f19", "a race: it writes", product},
		{"an element too wide", "mul.wide.u32 \t%rd7, %r5, 4;", "mul.wide.u32 \t%rd7, %r5, 2;", "ld.global.f32 \t%f2, [%rd2]", "no multiple", axpy(right)},
		{"a barrier in a branch", "setp.lt.u32 \t%p3, %r15, 2;", "setp.gt.u32 \t%p3, %r1, 40;", "", "it has ended", rows},
		{"too little shared memory", "add.s64 \t%rd3, %rd11, %rd10;", "add.s64 \t%rd3, %rd11, %rd10;\n\tadd.s64 \t%rd3, %rd3, 8;", "st.shared.f64 \t[%rd3], %fd12", "out of bounds", rows},
	} {
		t.Run(bug.name, func(t *testing.T) {
			require.Equal(t, bug.old != "", bug.old != "" && strings.Count(text, bug.old) == 1)
			planted := strings.Replace(text, bug.old, bug.new, 1)
			for seed := range uint64(8) { // in any order
				module := parsed(t, []byte(planted))
				var fault *ptx.LaunchError
				require.ErrorAs(t, bug.run(&memory{}, module, seed), &fault, "seed %d", seed)
				require.Contains(t, fault.Error(), bug.reason)
				if bug.mark != "" {
					require.Contains(t, strings.Split(planted, "\n")[fault.Line-1], strings.Split(bug.mark, "\n")[0], fault)
				}
				if seed == 0 {
					t.Log(fault, "|", strings.TrimSpace(strings.Split(planted, "\n")[fault.Line-1]))
				}
			}
		})
	}
}

// Instructions without a definite value are rejected by Parse, with their line.
func TestRefused(t *testing.T) {
	text := source(t)
	for _, planted := range []string{
		"atom.global.add.f32 \t%f9, [%rd1], %f4;", "red.global.add.f32 \t[%rd1], %f4;", "red.shared.add.f64 \t[%rd1], %fd4;",
		"atom.global.cas.b32 \t%r9, [%rd1], 1, 2;", "atom.shared.add.u32 \t%r9, [%rd1], 1;", "ex2.approx.f32 \t%f9, %f4;", "add.rn.ftz.f32 \t%f9, %f4, %f4;", "bar.sync \t1;",
		"st.local.u32 \t[%rd1], %r1;", "call \tf;", "wgmma.fence.sync.aligned;",
	} {
		changed := strings.Replace(text, "fma.rn.f32 \t%f4, %f1, %f2, %f3;", planted, 1)
		_, err := ptx.Parse([]byte(changed))
		require.ErrorIs(t, err, ptx.ErrUnsupported, planted)
		require.Contains(t, err.Error(), "line 45", planted)
	}
}

func TestLaunchRefuses(t *testing.T) {
	module := parsed(t, []byte(source(t)))
	require.Nil(t, module.Kernel("none"))
	k := module.Kernel("axpy")
	require.Equal(t, []ptx.Param{{Size: 8}, {Size: 8, Offset: 8}, {Size: 4, Offset: 16}, {Size: 4, Offset: 20}}, k.Params)
	params, err := k.Pack([]uint64{1 << 20, 1 << 21, 0x40000000, 9})
	require.NoError(t, err)
	require.Equal(t, packed(uint64(1<<20), uint64(1<<21), float32(2), uint32(9)), params)
	_, err = k.Pack([]uint64{1})
	require.Error(t, err)
	one := [3]int{1, 1, 1}
	for _, err := range []error{
		k.Launch(&memory{}, [3]int{0, 1, 1}, one, 0, make([]byte, 24), 0),
		k.Launch(&memory{}, one, [3]int{64, 32, 1}, 0, make([]byte, 24), 0),
		k.Launch(&memory{}, one, one, 0, make([]byte, 20), 0),
		k.Launch(&memory{}, one, one, 1<<20, make([]byte, 24), 0),
	} {
		require.Error(t, err)
	}
}

// Fused multiply-adds round once.
func TestFusedMultiplyAdd(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	module := parsed(t, []byte(source(t)))
	for range 200 {
		const n = 64
		a := math.Float32frombits(rng.Uint32() &^ (1 << 30))
		x, y := make([]float32, n), make([]float32, n)
		for i := range x {
			x[i], y[i] = math.Float32frombits(rng.Uint32()&^(1<<30)|1<<23), math.Float32frombits(rng.Uint32()&^(1<<30)|1<<23)
			if i%2 == 0 { // a sum close to the midpoint of two numbers
				y[i] = -float32(float64(a)*float64(x[i])) + math.Float32frombits(rng.Uint32()&^(1<<30)|1<<23)
			}
		}
		m := &memory{}
		in, out := m.floats(x...), m.floats(y...)
		require.NoError(t, module.Kernel("axpy").Launch(m, [3]int{2, 1, 1}, [3]int{32, 1, 1}, 0, packed(out, in, a, uint32(n)), 1))
		for i := range x {
			want, _ := exactly(a, x[i], y[i])
			require.Equal(t, fmt.Sprint(want), fmt.Sprint(float(out, i)), "%v·%v + %v", a, x[i], y[i])
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(source(f))
	f.Add(".visible .entry k(.param .u64 p)\n{\nret;\n}\n")
	f.Fuzz(func(t *testing.T, text string) {
		m, err := ptx.Parse([]byte(text))
		require.Equal(t, err == nil, m != nil)
	})
}

// exactly returns a·b + c rounded once, computed with arbitrary precision.
func exactly(a, b, c float32) (float32, big.Accuracy) {
	x, y, z := big.NewFloat(float64(a)), big.NewFloat(float64(b)), big.NewFloat(float64(c))
	product := new(big.Float).SetPrec(2000).Mul(x, y)
	return new(big.Float).SetPrec(2000).Add(product, z).Float32()
}

// parsed returns a module whose text is correct.
func parsed(t *testing.T, text []byte) *ptx.Module {
	t.Helper()
	module, err := ptx.Parse(text)
	require.NoError(t, err)
	return module
}
