package float8_test

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/arithmetic/float8"
)

// The tables of torchao: torchao/testing/_mxfp8_test_utils.py, and test_to_mx_rceil of
// test/prototype/mx_formats/test_mx_tensor.py.

// The blocks with which torchao checks implementations of MXFP8 against its own, from float32
// and from bfloat16, with the scale rounded up (rceil) and down (floor). All elements of a
// block but the first are equal.
func TestBlocksAsTorchao(t *testing.T) {
	type block struct {
		scale       float8.E8M0
		first, rest byte
	}
	type source struct {
		first, rest float32
		up, down    block
	}
	single := math.Float32frombits
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	alike := func(x float32, up, down block) source { return source{x, x, up, down} }
	both := func(s source) [2]source { return [2]source{s, s} }
	cases := []struct {
		name string
		from [2]source // float32, bfloat16
	}{
		{"zero", both(alike(0, block{0, 0, 0}, block{0, 0, 0}))},
		{"smallest normal", both(alike(0x1p-126, block{0, 0x40, 0x40}, block{0, 0x40, 0x40}))},
		{"mixed inf", both(source{inf, 1, block{255, 0x7f, 0x7f}, block{255, 0x7f, 0x7f}})},
		{"mixed nan", both(source{nan, 1, block{255, 0x7f, 0x7f}, block{255, 0x7f, 0x7f}})},
		{"positive fp8 max", both(alike(448, block{127, 0x7e, 0x7e}, block{127, 0x7e, 0x7e}))},
		{"negative fp8 max", both(alike(-448, block{127, 0xfe, 0xfe}, block{127, 0xfe, 0xfe}))},
		{"positive dtype max", [2]source{
			alike(single(0x7f7fffff), block{247, 0x78, 0x78}, block{246, 0x7e, 0x7e}),
			alike(bfloat16(0x7f7f), block{247, 0x78, 0x78}, block{246, 0x7e, 0x7e}),
		}},
		{"negative dtype max", [2]source{
			alike(single(0xff7fffff), block{247, 0xf8, 0xf8}, block{246, 0xfe, 0xfe}),
			alike(bfloat16(0xff7f), block{247, 0xf8, 0xf8}, block{246, 0xfe, 0xfe}),
		}},
		{"positive smallest subnormal", [2]source{
			alike(single(1), block{0, 0, 0}, block{0, 0, 0}),
			alike(bfloat16(1), block{0, 0x08, 0x08}, block{0, 0x08, 0x08}),
		}},
		{"negative smallest subnormal", [2]source{
			alike(-single(1), block{0, 0x80, 0x80}, block{0, 0x80, 0x80}),
			alike(-bfloat16(1), block{0, 0x88, 0x88}, block{0, 0x88, 0x88}),
		}},
		{"mixed positive underflow", [2]source{
			{single(1), 1, block{119, 0, 0x78}, block{119, 0, 0x78}},
			{bfloat16(1), 1, block{119, 0, 0x78}, block{119, 0, 0x78}},
		}},
		{"mixed negative underflow", [2]source{
			{-single(1), 1, block{119, 0x80, 0x78}, block{119, 0x80, 0x78}},
			{-bfloat16(1), 1, block{119, 0x80, 0x78}, block{119, 0x80, 0x78}},
		}},
		{"mixed saturation and underflow", [2]source{
			{single(0x7f7fffff), 1, block{247, 0x78, 0}, block{246, 0x7e, 0}},
			{bfloat16(0x7f7f), 1, block{247, 0x78, 0}, block{246, 0x7e, 0}},
		}},
		// A float32 next to 3.5 and one next to 512: rounding to bfloat16 first would give
		// those values, and a different scale.
		{"premature bf16 lowers the scale", [2]source{
			alike(single(0x40600001), block{121, 0x76, 0x76}, block{120, 0x7e, 0x7e}),
			alike(bfloat16(0x4060), block{120, 0x7e, 0x7e}, block{120, 0x7e, 0x7e}),
		}},
		{"premature bf16 raises the scale", [2]source{
			alike(single(0x43ffffff), block{128, 0x78, 0x78}, block{127, 0x7e, 0x7e}),
			alike(bfloat16(0x4400), block{128, 0x78, 0x78}, block{128, 0x78, 0x78}),
		}},
		{"all nan", both(alike(nan, block{255, 0x7f, 0x7f}, block{255, 0x7f, 0x7f}))},
		{"positive satfinite", both(alike(480, block{128, 0x77, 0x77}, block{127, 0x7e, 0x7e}))},
		{"negative satfinite", both(alike(-480, block{128, 0xf7, 0xf7}, block{127, 0xfe, 0xfe}))},
	}
	require.Len(t, cases, 18)
	for _, c := range cases {
		for _, from := range c.from {
			src := slices.Repeat([]float32{from.rest}, 32)
			src[0] = from.first
			for _, s := range sets() {
				for up, want := range map[bool]block{true: from.up, false: from.down} {
					codes := append([]byte{want.first}, slices.Repeat([]byte{want.rest}, 31)...)
					sameBlock(t, s, src, !up, want.scale, codes, "%v, %s of %g, up %v", s, c.name, from.first, up)
				}
			}
		}
	}
}

// sameBlock requires the scale and the codes of 32 elements in MXFP8, as a row and as a column.
func sameBlock(t *testing.T, s float8.Set, src []float32, down bool, scale float8.E8M0, codes []byte, name string, args ...any) {
	t.Helper()
	rowwise, _ := matrices(s, float8.MX32, &float8.E4M3, src, 1, 32, &float8.Rule{Down: down})
	_, columnwise := matrices(s, float8.MX32, &float8.E4M3, src, 32, 1, &float8.Rule{Down: down})
	for _, m := range []float8.Matrix{rowwise, columnwise} {
		require.Equal(t, []byte{byte(scale)}, m.Scales, append([]any{name}, args...)...)
		require.Equal(t, codes, m.Codes, append([]any{name}, args...)...)
	}
}

// The literal blocks: normal numbers, subnormal numbers, a mix of both, from float32 and from
// bfloat16, a block of zeros and one with a NaN.
func TestLiteralBlocksAsTorchao(t *testing.T) {
	for _, c := range []struct {
		name    string
		float32 []uint32
		half    []uint16
		scale   float8.E8M0
		codes   []byte // nil: all NaN
	}{
		{"nan", []uint32{
			2143289344, 1054459450, 1060527345, 1045656552, 1058239340, 1045057552, 1061158006, 1049626606,
			1052757568, 1032293288, 1056992320, 1064929425, 1061036255, 1047450552, 1057077424, 1055125012,
			1036491424, 1063542041, 1057099838, 1058731224, 1050189482, 1049114228, 1058347802, 1060065968,
			1058846156, 1048878912, 1065109089, 1054494928, 1044803976, 1049117692, 1065222528, 1056965012,
		}, nil, float8.NaNScale, nil},
		{"float32, subnormal", []uint32{
			6142315, 5096174, 3345704, 6178415, 5728750, 419002, 1716691, 4335089,
			5785800, 6234845, 1697524, 33075, 3975816, 3714822, 5411407, 3040844,
			7400945, 4474166, 7257182, 1273750, 5872176, 4694081, 2096530, 6273621,
			67028, 7585260, 4532315, 4599275, 6133942, 4542483, 5992199, 6862780,
		}, nil, 0, []byte{
			60, 58, 53, 60, 59, 29, 45, 56, 59, 60, 45, 4, 55, 54, 58, 52,
			62, 57, 62, 42, 59, 57, 48, 60, 8, 62, 57, 57, 60, 57, 59, 61,
		}},
		{"bfloat16, subnormal", nil, []uint16{
			101, 3, 47, 54, 36, 19, 70, 79, 35, 95, 28, 120, 84, 94, 20, 92,
			18, 42, 98, 58, 3, 26, 64, 86, 60, 86, 52, 23, 61, 70, 59, 74,
		}, 0, []byte{
			61, 20, 52, 54, 49, 42, 57, 58, 49, 60, 46, 63, 58, 60, 42, 60,
			41, 50, 60, 54, 20, 45, 56, 59, 55, 59, 53, 44, 55, 57, 55, 57,
		}},
		{"float32, one subnormal", []uint32{
			8388608, 1063716449, 1064039365, 1063568877, 1051091338, 1062185569, 1034449408, 1060813641,
			1054893736, 1034907680, 1036660744, 1023639888, 1058536559, 1050896496, 1049237634, 1064950601,
			1051852994, 1059794063, 1054011102, 1062023602, 1059467900, 1062276774, 1059155029, 1053287574,
			1064378711, 1055768540, 1045266076, 1059575077, 1054928758, 1040468200, 1058061961, 1053066436,
		}, nil, 119, []byte{
			0, 118, 119, 118, 106, 117, 91, 116, 110, 91, 93, 80, 113, 106, 105, 120,
			107, 115, 109, 117, 114, 117, 114, 108, 119, 111, 101, 114, 110, 96, 113, 108,
		}},
		{"bfloat16, one subnormal", nil, []uint16{
			128, 16118, 16143, 16074, 16187, 16002, 16193, 16217, 15680, 16183, 16092, 16158, 16251, 15876, 15896, 16194,
			16135, 16214, 16205, 16110, 16122, 15960, 15824, 16106, 16220, 16230, 15952, 15896, 16000, 16144, 16232, 16157,
		}, 119, []byte{
			0, 111, 113, 109, 116, 104, 116, 118, 84, 115, 110, 114, 120, 96, 98, 116,
			112, 117, 117, 111, 112, 102, 93, 111, 118, 118, 101, 98, 104, 113, 118, 114,
		}},
		{"zero", make([]uint32, 32), nil, 0, make([]byte, 32)},
		{"float32, normal", []uint32{
			1037408064, 1058534842, 1053630662, 1063310394, 994704128, 1057245441, 1060663708, 1058053571,
			1052395648, 1064831570, 1038427336, 1064777688, 1059248393, 1060959028, 1062878286, 1057799482,
			1057854101, 1053562724, 1027482352, 1060498324, 1063238522, 1060472055, 1054346794, 1029092912,
			1056687298, 1059146141, 1037992128, 1064097772, 1056522806, 1059255744, 1064364912, 1060606252,
		}, nil, 119, []byte{
			93, 113, 109, 118, 53, 112, 116, 113, 108, 120, 94, 119, 114, 116, 118, 113,
			113, 109, 84, 115, 118, 115, 110, 85, 112, 114, 94, 119, 112, 114, 119, 115,
		}},
		{"bfloat16, normal", nil, []uint16{
			15752, 16143, 16182, 15896, 16195, 16186, 16048, 16223, 15988, 16231, 16140, 16088, 16032, 16240, 16228, 16133,
			16210, 16024, 16248, 16187, 16050, 15696, 16060, 15956, 16131, 16251, 15896, 16014, 15808, 16024, 16159, 16186,
		}, 119, []byte{
			88, 113, 115, 98, 116, 116, 107, 118, 103, 118, 113, 110, 106, 119, 118, 112,
			117, 106, 120, 116, 107, 85, 108, 101, 112, 120, 98, 105, 92, 106, 114, 116,
		}},
	} {
		var src []float32
		for _, bits := range c.float32 {
			src = append(src, math.Float32frombits(bits))
		}
		for _, code := range c.half {
			src = append(src, bfloat16(code))
		}
		want := c.codes
		if want == nil {
			want = slices.Repeat([]byte{0x7f}, 32)
		}
		for _, s := range sets() {
			sameBlock(t, s, src, false, c.scale, want, "%v, %s", s, c.name)
		}
	}
}
