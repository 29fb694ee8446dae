package main

import "math"

// Constants occupy 64 bytes of memory each, so that a full register of either width can use
// them as an operand.
var constants = []constant{
	float("one", 1), float("half", 0.5), float("inf", math.Inf(-1)), {"sign", 1 << 31}, {"magnitude", 1<<31 - 1},
	// For exp: the arguments at which e^x overflows and becomes less than the smallest normal
	// number, the parts of ln 2, and the coefficients of e^r = 1 + r + r²·(...) over |r| <=
	// ln 2/2, interpolated at Chebyshev nodes with an error of 2^-26.
	float("expTop", 88.5), float("expMin", -87.33654), float("log2e", math.Log2E),
	float("round", 1<<23+1<<22), float("ln2Hi", 0.693359375), float("ln2Lo", math.Ln2-0.693359375), {"exponent", 127 << 23},
	float("exp2", 0.5), float("exp3", 0.16666576666119928), float("exp4", 0.04166655421298412),
	float("exp5", 0.008363232883682618), float("exp6", 0.00139262508314996),
	{"philox0", 0xd2511f53}, {"philox1", 0xcd9e8d57}, {"weyl0", 0x9e3779b9}, {"weyl1", 0xbb67ae85},
	float("gelu1", gelu1), float("gelu3", gelu1*0.044715), float("gelu3x3", 3*gelu1*0.044715),
}

const gelu1 = 1.5957691216057308 // 2·sqrt(2/π)

// kernels are the functions, in the order of the generated files.
var kernels = []kernel{
	{
		name: "add", doc: "dst += src", args: "dst, src *float32, n int",
		body: `
			load dst V0
			load src V1
			VADDPS V1, V0, V0
			store V0 dst`,
	},
	{
		name: "sum", doc: "dst = x + y", args: "dst, x, y *float32, n int",
		body: `
			load x V0
			load y V1
			VADDPS V1, V0, V0
			store V0 dst`,
	},
	{
		name: "scale", doc: "dst = a·src", args: "dst, src *float32, n int, a float32",
		begin: `spread a V1`,
		body: `
			load src V0
			VMULPS V1, V0, V0
			store V0 dst`,
	},
	{
		name: "larger", doc: "top = the larger of x and top; top where x is NaN", args: "top, x *float32, n int",
		body: `
			load top V0
			load x V1
			VMAXPS V0, V1, V0
			store V0 top`,
	},
	{
		name: "expScaled", doc: "x = scale·e^(x-shift)", args: "x *float32, n int, shift, scale float32",
		begin: `
			spread shift V1
			spread scale V2`,
		body: `
			load x V0
			VSUBPS V1, V0, V0
			exp V0
			VMULPS V2, V0, V0
			store V0 x`,
	},
	{
		name: "expAdd", doc: "x = e^(x-top), total += x", args: "x, top, total *float32, n int",
		body: `
			load x V0
			load top V1
			VSUBPS V1, V0, V0
			exp V0
			store V0 x
			load total V1
			VADDPS V0, V1, V1
			store V1 total`,
	},
	{
		name: "expGrad", doc: "p = e^(p-lse), ds = scale·p·(ds-delta)", args: "p, ds, lse, delta *float32, n int, scale float32",
		begin: `spread scale V3`,
		body: `
			load p V0
			load lse V1
			VSUBPS V1, V0, V0
			exp V0
			store V0 p
			load ds V1
			load delta V2
			VSUBPS V2, V1, V1
			VMULPS V3, V0, V0
			VMULPS V0, V1, V1
			store V1 ds`,
	},
	{
		name: "rescale", doc: "scale = e^(top-next), sum *= scale, top = next", args: "scale, top, next, sum *float32, n int",
		body: `
			load top V0
			load next V1
			store V1 top
			VSUBPS V1, V0, V0
			exp V0
			store V0 scale
			load sum V1
			VMULPS V0, V1, V1
			store V1 sum`,
	},
	{
		name: "gelu", doc: "y = (x + |x|)/2 - |x|·e/(1+e), e being e^-|2u|", args: "y, x *float32, n int",
		body: `
			load x V0
			VMULPS V0, V0, V1
			VMOVUPS [gelu3], V2
			VFMADD213PS [gelu1], V1, V2
			VMULPS V0, V2, V2
			VORPS [sign], V2, V2 // -|2u|
			exp V2
			VADDPS [one], V2, V3
			VDIVPS V3, V2, V2
			VANDPS [magnitude], V0, V1
			VMULPS V1, V2, V2
			VMULPS [half], V0, V0
			VFMADD231PS [half], V1, V0
			VSUBPS V2, V0, V0
			store V0 y`,
	},
	{
		name: "geluGrad", doc: "dx = dy·(σ(2u) + x·σ(2u)·σ(-2u)·(2u)')", args: "dx, dy, x *float32, n int",
		body: `
			load x V0
			load dy V1
			VMULPS V0, V0, V2
			VMOVUPS [gelu3], V3
			VFMADD213PS [gelu1], V2, V3
			VMULPS V0, V3, V3 // 2u
			VORPS [sign], V3, V4
			exp V4 // e = e^-|2u|
			VADDPS [one], V4, V5
			VMOVUPS [one], V6
			VDIVPS V5, V6, V6 // s = σ(|2u|)
			VMULPS V4, V6, V7 // r = 1 - s
			VMOVUPS [half], V8
			VSUBPS V7, V8, V8
			VANDPS [sign], V3, V9
			VXORPS V9, V8, V8
			VADDPS [half], V8, V8 // σ(2u), s or r
			VMOVUPS [gelu3x3], V9
			VFMADD213PS [gelu1], V2, V9 // (2u)'
			VMULPS V0, V6, V5
			VMULPS V7, V5, V5
			VMULPS V9, V5, V5
			VXORPS V9, V9, V9
			keep V5 where V4 4 V9 // e is not 0, or NaN
			VADDPS V5, V8, V8
			VMULPS V8, V1, V1
			store V1 dx`,
	},
	{
		name: "normalise", doc: "y = (x - mean)·rstd·gamma + beta", args: "y, x, gamma, beta *float32, n int, mean, rstd float32",
		begin: `
			spread mean V3
			spread rstd V4`,
		body: `
			load x V0
			VSUBPS V3, V0, V0
			VMULPS V4, V0, V0
			load gamma V1
			load beta V2
			VFMADD213PS V2, V1, V0
			store V0 y`,
	},
	{
		name: "normGrad", doc: "dx = rstd·(dy·gamma - meanG - (x - mean)·rstd·meanGN)",
		args: "dx, dy, x, gamma *float32, n int, mean, rstd, meanG, meanGN float32",
		begin: `
			spread mean V3
			spread rstd V4
			spread meanG V5
			spread meanGN V6`,
		body: `
			load x V0
			VSUBPS V3, V0, V0
			VMULPS V4, V0, V0
			load dy V1
			load gamma V2
			VFMSUB213PS V5, V2, V1
			VFNMADD231PS V0, V6, V1
			VMULPS V4, V1, V1
			store V1 dx`,
	},
	{
		name: "normGain", doc: "dgamma += dy·(x - mean)·rstd", args: "dgamma, dy, x *float32, n int, mean, rstd float32",
		begin: `
			spread mean V3
			spread rstd V4`,
		body: `
			load x V0
			VSUBPS V3, V0, V0
			VMULPS V4, V0, V0
			load dy V1
			load dgamma V2
			VFMADD231PS V0, V1, V2
			store V2 dgamma`,
	},
	{
		name: "adamW", doc: "one update, as AdamW says",
		args: "weight, grad, m, v *float32, n int, factor, beta1, rest1, beta2, rest2, correct1, correct2, epsilon, rate, decay float32",
		begin: `
			spread factor V5
			spread beta1 V6
			spread rest1 V7
			spread beta2 V8
			spread rest2 V9
			spread correct1 V10
			spread correct2 V11
			spread epsilon V12
			spread rate V13
			spread decay V14`,
		body: `
			load grad V0
			VMULPS V5, V0, V0
			load m V1
			VMULPS V6, V1, V1
			VFMADD231PS V7, V0, V1
			store V1 m
			load v V2
			VMULPS V8, V2, V2
			VMULPS V9, V0, V3
			VFMADD231PS V3, V0, V2
			store V2 v
			VMULPS V11, V2, V2
			VSQRTPS V2, V2
			VADDPS V12, V2, V2
			VMULPS V10, V1, V1
			VDIVPS V2, V1, V1
			load weight V3
			VFMADD231PS V14, V3, V1
			VFNMADD231PS V13, V1, V3
			store V3 weight`,
	},
	{
		name: "total", doc: "Σ x in float64", args: "x *float32, n int", results: "sum float64", eight: true,
		body: `
			load x V6
			widen V6 D1
			VADDPD D1, D0, D0`,
		sums: 1,
	},
	{
		name: "squares", doc: "Σ (x - mean)² in float64", args: "x *float32, n int, mean float32", results: "sum float64", eight: true,
		begin: `
			spread mean V7
			widen V7 D2`,
		body: `
			load x V6
			fill V6 V7
			widen V6 D1
			VSUBPD D2, D1, D1
			VMULPD D1, D1, D1
			VADDPD D1, D0, D0`,
		sums: 1,
	},
	{
		name: "dot", doc: "Σ x·y in float64", args: "x, y *float32, n int", results: "sum float64", eight: true,
		body: `
			load x V6
			load y V7
			widen V6 D1
			widen V7 D2
			VMULPD D2, D1, D1
			VADDPD D1, D0, D0`,
		sums: 1,
	},
	{
		name: "normSums", doc: "Σ g and Σ g·(x - mean)·rstd in float64, g being dy·gamma in float32",
		args: "dy, x, gamma *float32, n int, mean, rstd float32", results: "sum, along float64", eight: true,
		begin: `
			spread mean V12
			spread rstd V13`,
		body: `
			load dy V6
			load gamma V7
			VMULPS V7, V6, V6
			load x V7
			VSUBPS V12, V7, V7
			VMULPS V13, V7, V7
			VMULPS V6, V7, V7
			widen V6 D2
			VADDPD D2, D0, D0
			widen V7 D2
			VADDPD D2, D1, D1`,
		sums: 2,
	},
	{
		name: "sumExp", doc: "Σ e^(x-shift), each in float32, the sum in float64", args: "x *float32, n int, shift float32", results: "sum float64",
		begin: `spread shift V7`,
		body: `
			load x V6
			VSUBPS V7, V6, V6
			exp V6
			mask V6
			count V6 D0 D1`,
		sums: 1,
	},
	{
		name: "largest", doc: "the largest element that is not NaN, else -Inf", args: "x *float32, n int", results: "top float32",
		begin: `
			VMOVUPS [inf], V1
			VMOVUPS V1, V0`,
		body: `
			load x V6
			fill V6 V1
			VMAXPS V0, V6, V0`,
		end: `
			halve V0 V1
			VEXTRACTF128 $1, Y0, X1
			VMAXPS X1, X0, X0
			VPERMILPS $0x4e, X0, X1
			VMAXPS X1, X0, X0
			VPERMILPS $0xb1, X0, X1
			VMAXSS X1, X0, X0
			MOVSS X0, top+{top}(FP)`,
	},
}
