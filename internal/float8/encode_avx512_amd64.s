//go:build amd64 && !purego

#include "textflag.h"

// Encoding for AVX-512, sixteen elements at a time. With a the magnitude times the scale
// (which encodeArgs has times a power of two, see there), and m the power of two of its
// binade, at least that of the least normal number:
//
//	t = m·2^shift + a
//
// is rounded by the addition to a multiple of what the last bit of the format is worth
// there. Its lowest bits are that multiple, its exponent is that of m, so that the lowest
// byte of t>>shift + t is the code, subnormal or not.
//
// The layout of encodeArgs (encode_amd64.go), by offset: 0 scale, 4 most, 8 normal, 12 ulp,
// 16 shift, 24 amax, 28 zeros.
//
// Registers that last:
//
//	Z16 scale   Z17 0x7fffffff   Z18 most    Z19 normal
//	Z20 ulp     Z21 0x7f800000   Z22 0x80    Z24 amax
//	X14 shift
//
// DI is dst, SI src, CX the elements left.

#define CONSTANTS(r) \
	VBROADCASTSS 0(r), Z16      \
	MOVL $0x7fffffff, AX        \
	VPBROADCASTD AX, Z17        \
	VBROADCASTSS 4(r), Z18      \
	VBROADCASTSS 8(r), Z19      \
	VBROADCASTSS 12(r), Z20     \
	MOVL $0x7f800000, AX        \
	VPBROADCASTD AX, Z21        \
	MOVL $0x80, AX              \
	VPBROADCASTD AX, Z22        \
	VMOVQ 16(r), X14

// CODES makes codes of the magnitudes in x and the elements at from, in double words of y.
#define CODES(from, x, y) \
	VMULPS Z16, x, x            \
	VMINPS Z18, x, x            \ // saturated
	VMAXPS Z19, x, y            \
	VPANDD Z21, y, y            \ // m
	VFMADD213PS x, Z20, y       \ // t
	VPSRLD X14, y, x            \
	VPADDD x, y, y              \
	VPSRLD $24, from, x         \ // the sign on top of a byte
	VPTERNLOGD $0xf8, Z22, x, y   // y | x&0x80

// REDUCE leaves the greatest double word of Z(x) in AX.
#define REDUCE(zx, yx, xx, yt, xt) \
	VEXTRACTI64X4 $1, zx, yt    \
	VPMAXUD yx, yt, yx          \
	VEXTRACTI128 $1, yx, xt     \
	VPMAXUD xx, xt, xx          \
	VPSHUFD $0x4e, xx, xt       \
	VPMAXUD xx, xt, xx          \
	VPSHUFD $0xb1, xx, xt       \
	VPMAXUD xx, xt, xx          \
	VMOVD xx, AX

// func encode512(dst *byte, src *float32, n int, r *encodeArgs)
//
// n is a positive multiple of 32.
TEXT ·encode512(SB), NOSPLIT, $0-32
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX
	MOVQ r+24(FP), R8
	CONSTANTS(R8)
	VPXORD Z24, Z24, Z24
	VPXORD Z25, Z25, Z25
	MOVQ DI, R9
	MOVQ CX, R10

encode:
	VPANDD (SI), Z17, Z0
	VPANDD 64(SI), Z17, Z2
	VPMAXUD Z0, Z24, Z24
	VPMAXUD Z2, Z25, Z25
	CODES((SI), Z0, Z1)
	CODES(64(SI), Z2, Z3)
	VPMOVDB Z1, (DI)
	VPMOVDB Z3, 16(DI)
	ADDQ $128, SI
	ADDQ $32, DI
	SUBQ $32, CX
	JNZ encode

	VPMAXUD Z25, Z24, Z0
	REDUCE(Z0, Y0, X0, Y1, X1)
	MOVL AX, 24(R8)

	// Codes of zero.
	MOVL $0x7f7f7f7f, AX
	VPBROADCASTD AX, Y1
	XORL BX, BX
zeros:
	VPTESTNMB (R9), Y1, K1
	KMOVD K1, AX
	POPCNTL AX, AX
	ADDL AX, BX
	ADDQ $32, R9
	SUBQ $32, R10
	JNZ zeros
	MOVL BX, 28(R8)
	VZEROUPPER
	RET

// func zeros512(src *float32, n int) int
//
// n is a positive multiple of 16.
TEXT ·zeros512(SB), NOSPLIT, $0-24
	MOVQ src+0(FP), SI
	MOVQ n+8(FP), CX
	MOVL $0x7fffffff, AX
	VPBROADCASTD AX, Z17
	XORL BX, BX
zeros:
	VPTESTNMD (SI), Z17, K1
	KMOVW K1, AX
	POPCNTL AX, AX
	ADDQ AX, BX
	ADDQ $64, SI
	SUBQ $16, CX
	JNZ zeros
	MOVQ BX, ret+16(FP)
	VZEROUPPER
	RET

// func encodeMX512(dst, scales *byte, src *float32, blocks int, r *encodeArgs) int
//
// Blocks of 32 with a scale each. The layout of the rest of encodeArgs: 32 up, what turns
// an amax into 2^23 times the code of its scale, 36 one, the code of a scale whose
// reciprocal times the power of two is 2^-127, 40 top, the greatest code that is done here,
// 44 least, the least amax less 1. It stops at a block with a greater code, and returns how
// many are done.
TEXT ·encodeMX512(SB), NOSPLIT, $0-48
	MOVQ dst+0(FP), DI
	MOVQ scales+8(FP), R11
	MOVQ src+16(FP), SI
	MOVQ blocks+24(FP), CX
	MOVQ r+32(FP), R8
	CONSTANTS(R8)
	MOVL 32(R8), R12
	MOVL 36(R8), R13
	MOVL 40(R8), DX
	MOVL $-1, R15
	XORL BX, BX
	XORL R9, R9                 // codes of zero
	MOVL $0x7f7f7f7f, AX
	VPBROADCASTD AX, Y23
	MOVQ CX, R10

block:
	VPANDD (SI), Z17, Z0
	VPANDD 64(SI), Z17, Z2
	VPMAXUD Z0, Z2, Z4
	REDUCE(Z4, Y4, X4, Y5, X5)
	CMPL AX, BX
	CMOVLHI AX, BX              // may be of a block that is not done
	LEAL -1(AX), R14
	XORL R8, R8
	ADDL R12, AX
	SARL $23, AX                // code
	CMOVLMI R8, AX
	CMPL AX, DX
	JGT stop
	CMPL R14, R15
	CMOVLCS R14, R15
	MOVB AX, (R11)
	MOVL R13, R8
	SUBL AX, R8
	SHLL $23, R8
	VPBROADCASTD R8, Z16
	CODES((SI), Z0, Z1)
	CODES(64(SI), Z2, Z3)
	VPMOVDB Z1, X0
	VPMOVDB Z3, X2
	VINSERTI128 $1, X2, Y0, Y0
	VMOVDQU Y0, (DI)
	VPTESTNMB Y23, Y0, K1
	KMOVD K1, AX
	POPCNTL AX, AX
	ADDL AX, R9
	ADDQ $128, SI
	ADDQ $32, DI
	INCQ R11
	DECQ CX
	JNZ block

stop:
	MOVQ r+32(FP), R8
	MOVL BX, 24(R8)
	MOVL R9, 28(R8)
	MOVL R15, 44(R8)
	SUBQ CX, R10
	MOVQ R10, ret+40(FP)
	VZEROUPPER
	RET

// func encodeRows512(dst *byte, inverses, src *float32, blocks int, r *encodeArgs) int
//
// Blocks of 128 with a scale each. The layout of the rest of encodeArgs: 32 greatest, the
// greatest value of the format, 36 mask, the bits of a scale that are taken, 40 epsilon,
// 44 least, the bits of the least scale, 48 last, those of the greatest, 52 adjust, the
// power of two. It stops at a block whose amax is zero or not finite, or whose scale is
// too small, and returns how many are done.
TEXT ·encodeRows512(SB), NOSPLIT, $0-48
	MOVQ dst+0(FP), DI
	MOVQ inverses+8(FP), R11
	MOVQ src+16(FP), SI
	MOVQ blocks+24(FP), CX
	MOVQ r+32(FP), R8
	CONSTANTS(R8)
	MOVL $-1, R15
	XORL R13, R13
	XORL BX, BX
	XORL R9, R9
	MOVL $0x7f7f7f7f, AX
	VPBROADCASTD AX, Z23
	MOVL $0x3f800000, AX
	VMOVD AX, X15
	MOVL $0x7f7fffff, AX
	VMOVD AX, X13
	MOVQ CX, R10

block:
	VPANDD (SI), Z17, Z0
	VPANDD 64(SI), Z17, Z2
	VPANDD 128(SI), Z17, Z4
	VPMAXUD Z4, Z0, Z4
	VPANDD 192(SI), Z17, Z5
	VPMAXUD Z5, Z2, Z5
	VPANDD 256(SI), Z17, Z6
	VPMAXUD Z6, Z4, Z4
	VPANDD 320(SI), Z17, Z7
	VPMAXUD Z7, Z5, Z5
	VPANDD 384(SI), Z17, Z6
	VPMAXUD Z6, Z4, Z4
	VPANDD 448(SI), Z17, Z7
	VPMAXUD Z7, Z5, Z5
	VPMAXUD Z5, Z4, Z4
	REDUCE(Z4, Y4, X4, Y5, X5)
	CMPL AX, BX
	CMOVLHI AX, BX
	MOVL 40(R8), DX
	CMPL AX, DX
	CMOVLCS DX, AX
	LEAL -1(AX), DX
	CMPL DX, $0x7f7fffff        // zero, infinite or NaN
	JCC stop
	VMOVD AX, X4
	VMOVSS 32(R8), X5
	VDIVSS X4, X5, X5
	VMINSS X13, X5, X5
	VMOVD X5, AX
	ANDL 36(R8), AX             // scale
	CMPL AX, $0x10000000
	JCS stop
	CMPL AX, R15
	CMOVLCS AX, R15
	CMPL AX, R13
	CMOVLHI AX, R13
	VMOVD AX, X5
	VDIVSS X5, X15, X4
	VMOVSS X4, (R11)
	VMULSS 52(R8), X5, X5
	VBROADCASTSS X5, Z16
	MOVL $4, DX

pair:
	VPANDD (SI), Z17, Z0
	VPANDD 64(SI), Z17, Z2
	CODES((SI), Z0, Z1)
	CODES(64(SI), Z2, Z3)
	VPMOVDB Z1, X0
	VPMOVDB Z3, X2
	VINSERTI128 $1, X2, Y0, Y0
	VMOVDQU Y0, (DI)
	VPTESTNMB Y23, Y0, K1
	KMOVD K1, AX
	POPCNTL AX, AX
	ADDL AX, R9
	ADDQ $128, SI
	ADDQ $32, DI
	DECL DX
	JNZ pair
	ADDQ $4, R11
	DECQ CX
	JNZ block

stop:
	MOVL BX, 24(R8)
	MOVL R9, 28(R8)
	MOVL R15, 44(R8)
	MOVL R13, 48(R8)
	SUBQ CX, R10
	MOVQ R10, ret+40(FP)
	VZEROUPPER
	RET
