package ptx_test

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/kernels/cuda/internal/ptx"
)

// multiplies rounds the values of each thread to pairs of bfloat16, 4 of a and 2 of b, and
// stores its four elements of the product.
const multiplies = `.visible .entry multiplies(
	.param .u64 p0,
	.param .u64 p1
)
{
	ld.param.u64 	%rd1, [p0];
	ld.param.u64 	%rd2, [p1];
	mov.u32 	%r1, %tid.x;
	mul.wide.u32 	%rd3, %r1, 64;
	add.s64 	%rd4, %rd2, %rd3;
	ld.global.v4.f32 	{%f1, %f2, %f3, %f4}, [%rd4];
	ld.global.v4.f32 	{%f5, %f6, %f7, %f8}, [%rd4+16];
	ld.global.v4.f32 	{%f9, %f10, %f11, %f12}, [%rd4+32];
	ld.global.v4.f32 	{%f13, %f14, %f15, %f16}, [%rd4+48];
	cvt.rn.bf16x2.f32 	%r2, %f2, %f1;
	cvt.rn.bf16x2.f32 	%r3, %f4, %f3;
	cvt.rn.bf16x2.f32 	%r4, %f6, %f5;
	cvt.rn.bf16x2.f32 	%r5, %f8, %f7;
	cvt.rn.bf16x2.f32 	%r6, %f10, %f9;
	cvt.rn.bf16x2.f32 	%r7, %f12, %f11;
	setp.gt.u32 	%p1, %r1, 31;
	@%p1 bra 	$L;
	mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f13, %f14, %f15, %f16}, {%r2, %r3, %r4, %r5}, {%r6, %r7}, {%f13, %f14, %f15, %f16};
$L:
	mul.wide.u32 	%rd3, %r1, 16;
	add.s64 	%rd4, %rd1, %rd3;
	st.global.v4.f32 	[%rd4], {%f13, %f14, %f15, %f16};
	ret;
}
`

// A warp's matrix product has the layout that the PTX ISA specifies for element i of a thread.
func TestMatrices(t *testing.T) {
	module := parsed(t, []byte(multiplies))
	rng := rand.New(rand.NewPCG(1, 2))
	var a [16][16]float64
	var b, c [16][8]float64
	in := make([]float32, 32*16)
	value := func() float32 { return float32(rng.IntN(255)-127) / 16 } // 8 bits: exact in bfloat16
	for lane := range 32 {
		group, id := lane/4, lane%4
		x := in[16*lane:]
		for i := range 8 {
			x[i] = value()
			row, col := group, id*2+i&1
			if i >= 2 && i < 4 || i >= 6 {
				row += 8
			}
			if i >= 4 {
				col += 8
			}
			a[row][col] = float64(x[i])
		}
		for i := range 4 {
			x[8+i], x[12+i] = value(), value()
			row := id*2 + i&1
			if i >= 2 {
				row += 8
			}
			b[row][group] = float64(x[8+i])
			c[group+i/2*8][id*2+i&1] = float64(x[12+i])
		}
	}
	m := &memory{}
	out := m.alloc(4*32*4, false)
	k := module.Kernel("multiplies")
	require.NoError(t, k.Launch(m, [3]int{1, 1, 1}, [3]int{32, 1, 1}, 0, packed(out, m.floats(in...)), 1))
	for lane := range 32 {
		for i := range 4 {
			row, col := lane/4+i/2*8, lane%4*2+i&1
			want := c[row][col]
			for l := range 16 {
				want += a[row][l] * b[l][col]
			}
			require.Equal(t, float32(want), float(out, 4*lane+i), "row %d, column %d", row, col)
		}
	}

	short := parsed(t, []byte(strings.Replace(multiplies, "%r1, 31;", "%r1, 30;", 1)))
	err := short.Kernel("multiplies").Launch(m, [3]int{1, 1, 1}, [3]int{32, 1, 1}, 0, packed(out, m.floats(in...)), 1)
	require.ErrorContains(t, err, "line 23: thread [0 0 0] of block [0 0 0]: multiplies matrices without some threads of its warp")
	for _, change := range [][2]string{{"m16n8k16.row.col.f32.bf16.bf16.f32 ", "m16n8k8.row.col.f32.tf32.tf32.f32 "}, {"\tmma", "\t@%p1 mma"}} {
		_, err = ptx.Parse([]byte(strings.Replace(multiplies, change[0], change[1], 1)))
		require.ErrorIs(t, err, ptx.ErrUnsupported)
	}
	_, err = ptx.Parse([]byte(strings.Replace(multiplies, "{%r6, %r7}", "{%r6}", 1)))
	require.ErrorContains(t, err, "1 registers, want 2")
}

// Numbers are rounded to bfloat16 to nearest, ties to even, and every NaN to the same NaN.
func TestBFloat16(t *testing.T) {
	text := strings.Replace(multiplies, "{%f13, %f14, %f15, %f16};\n\tret", "{%r2, %r3, %r4, %r5};\n\tret", 1)
	module := parsed(t, []byte(text))
	in := make([]float32, 32*16)
	inf := float32(math.Inf(1))
	copy(in, []float32{1 + 0x1p-8, 1 + 0x1.8p-7, -1 - 0x1.001p-8, math.MaxFloat32, inf, -inf, float32(math.NaN()), 0x1p-149})
	m := &memory{}
	out := m.alloc(4*32*4, false)
	require.NoError(t, module.Kernel("multiplies").Launch(m, [3]int{1, 1, 1}, [3]int{32, 1, 1}, 0, packed(out, m.floats(in...)), 1))
	for i, want := range []uint16{0x3f80, 0x3f82, 0xbf81, 0x7f80, 0x7f80, 0xff80, 0x7fff, 0} {
		require.Equal(t, want, binary.LittleEndian.Uint16(out.Data[2*i:]), "%v", in[i])
	}
}
