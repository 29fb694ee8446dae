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
//	Z20 ulp     Z21 0x7f800000   Z22 0x7f    Z23 order of packed codes
//	Z24 amax    X14 shift
//
// DI is dst, SI src, CX what is left.

DATA bits<>+0(SB)/4, $0x7fffffff
DATA bits<>+4(SB)/4, $0x7f800000
DATA bits<>+8(SB)/4, $0x7f
DATA bits<>+12(SB)/4, $0x7f7f7f7f
GLOBL bits<>(SB), RODATA|NOPTR, $16

DATA nibble<>+0(SB)/4, $0x0f0f0f0f
GLOBL nibble<>(SB), RODATA|NOPTR, $4

// Double words 0, 4, 8, 12, 1, ...
DATA order<>+0(SB)/8, $0x0000000400000000
DATA order<>+8(SB)/8, $0x0000000c00000008
DATA order<>+16(SB)/8, $0x0000000500000001
DATA order<>+24(SB)/8, $0x0000000d00000009
DATA order<>+32(SB)/8, $0x0000000600000002
DATA order<>+40(SB)/8, $0x0000000e0000000a
DATA order<>+48(SB)/8, $0x0000000700000003
DATA order<>+56(SB)/8, $0x0000000f0000000b
GLOBL order<>(SB), RODATA|NOPTR, $64

#define CONSTANTS(r) \
	VBROADCASTSS 0(r), Z16      \
	VPBROADCASTD bits<>+0(SB), Z17 \
	VBROADCASTSS 4(r), Z18      \
	VBROADCASTSS 8(r), Z19      \
	VBROADCASTSS 12(r), Z20     \
	VPBROADCASTD bits<>+4(SB), Z21 \
	VPBROADCASTD bits<>+8(SB), Z22 \
	VMOVDQU64 order<>(SB), Z23  \
	VMOVQ 16(r), X14

// AHEAD is for so many lines of 64 bytes that will be read a page further on: hardware
// stops at the end of one.
#define AHEAD2 PREFETCHT0 4096(SI); PREFETCHT0 4160(SI)
#define AHEAD4 AHEAD2; PREFETCHT0 4224(SI); PREFETCHT0 4288(SI)
#define AHEAD8 AHEAD4; PREFETCHT0 4352(SI); PREFETCHT0 4416(SI); PREFETCHT0 4480(SI); PREFETCHT0 4544(SI)

// CODES makes codes of the magnitudes in x and the elements at from, in double words of y.
// The scale is in every lane of s.
#define CODES(from, s, x, y) \
	VMULPS s, x, x              \
	VMINPS Z18, x, x            \ // saturated
	VMAXPS Z19, x, y            \
	VPANDD Z21, y, y            \ // m
	VFMADD213PS x, Z20, y       \ // t
	VPSRLD X14, y, x            \
	VPADDD x, y, y              \
	VPSRLD $24, from, x         \ // the sign on top of a byte
	VPTERNLOGD $0xe4, Z22, x, y   // y&0x7f | x&^0x7f

// PACK makes bytes of four times sixteen codes, in a.
#define PACK(a, b, c, d) \
	VPACKUSDW b, a, a           \
	VPACKUSDW d, c, c           \
	VPACKUSWB c, a, a           \
	VPERMD a, Z23, a

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

// ZEROS adds to sum the number of codes of zero in z.
#define ZEROS(z, sum) \
	VPTESTNMB Z15, z, K1        \
	KMOVQ K1, AX                \
	POPCNTQ AX, AX              \
	ADDL AX, sum

// func encode512(dst *byte, src *float32, n int, r *encodeArgs)
//
// n is a positive multiple of 64.
TEXT ·encode512(SB), NOSPLIT, $0-32
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX
	MOVQ r+24(FP), R8
	CONSTANTS(R8)
	VPBROADCASTD bits<>+12(SB), Z15
	VPXORD Z24, Z24, Z24
	VPXORD Z25, Z25, Z25
	XORL BX, BX

encode:
	AHEAD4
	VPANDD (SI), Z17, Z0
	VPANDD 64(SI), Z17, Z2
	VPANDD 128(SI), Z17, Z4
	VPANDD 192(SI), Z17, Z6
	VPMAXUD Z0, Z24, Z24
	VPMAXUD Z2, Z25, Z25
	VPMAXUD Z4, Z24, Z24
	VPMAXUD Z6, Z25, Z25
	CODES((SI), Z16, Z0, Z1)
	CODES(64(SI), Z16, Z2, Z3)
	CODES(128(SI), Z16, Z4, Z5)
	CODES(192(SI), Z16, Z6, Z7)
	PACK(Z1, Z3, Z5, Z7)
	VMOVDQU64 Z1, (DI)
	ZEROS(Z1, BX)
	ADDQ $256, SI
	ADDQ $64, DI
	SUBQ $64, CX
	JNZ encode

	MOVL BX, 28(R8)
	VPMAXUD Z25, Z24, Z0
	REDUCE(Z0, Y0, X0, Y1, X1)
	MOVL AX, 24(R8)
	VZEROUPPER
	RET

// func zeros512(src *float32, n int) int
//
// n is a positive multiple of 16.
TEXT ·zeros512(SB), NOSPLIT, $0-24
	MOVQ src+0(FP), SI
	MOVQ n+8(FP), CX
	VPBROADCASTD bits<>+0(SB), Z17
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

// AMAX4 leaves in x of a the greatest double words of a, b, c and d, in this order.
#define AMAX4(za, ya, xa, zb, zc, zd, zs, zt, yt, xt) \
	VPUNPCKLDQ zb, za, zs       \
	VPUNPCKHDQ zb, za, zt       \
	VPMAXUD zs, zt, za          \ // a b a b in each 128 bits
	VPUNPCKLDQ zd, zc, zs       \
	VPUNPCKHDQ zd, zc, zt       \
	VPMAXUD zs, zt, zc          \ // c d c d
	VPUNPCKLQDQ zc, za, zs      \
	VPUNPCKHQDQ zc, za, zt      \
	VPMAXUD zs, zt, za          \ // a b c d
	VEXTRACTI64X4 $1, za, yt    \
	VPMAXUD ya, yt, ya          \
	VEXTRACTI128 $1, ya, xt     \
	VPMAXUD xa, xt, xa

// func encodeMX512(dst, scales *byte, src *float32, blocks int, r *encodeArgs) int
//
// Blocks of 32 with a scale each, four at a time: blocks is a positive multiple of 4. The
// layout of the rest of encodeArgs: 32 up, what turns an amax into 2^23 times the code of
// its scale, 36 one, the code of a scale whose reciprocal times the power of two is 2^-127,
// 40 top, the greatest code that is done here, 44 least, the least amax less 1. It stops
// before four blocks one of which has a greater code, and returns how many are done.
//
// X26 up  X27 one  X28 top  X24 amax  X25 least  X30 0xffffffff  X29 0; 0(SP) scales
TEXT ·encodeMX512(SB), NOSPLIT, $16-48
	MOVQ dst+0(FP), DI
	MOVQ scales+8(FP), R11
	MOVQ src+16(FP), SI
	MOVQ blocks+24(FP), CX
	MOVQ r+32(FP), R8
	CONSTANTS(R8)
	VPBROADCASTD bits<>+12(SB), Z15
	VPBROADCASTD 32(R8), X26
	VPBROADCASTD 36(R8), X27
	VPBROADCASTD 40(R8), X28
	VPXORD X24, X24, X24
	VPXORD X29, X29, X29
	VPTERNLOGD $0xff, X30, X30, X30
	VMOVDQA32 X30, X25
	XORL BX, BX
	MOVQ CX, R10

blocks:
	AHEAD8
	VPANDD (SI), Z17, Z0
	VPANDD 64(SI), Z17, Z1
	VPANDD 128(SI), Z17, Z2
	VPANDD 192(SI), Z17, Z3
	VPANDD 256(SI), Z17, Z4
	VPANDD 320(SI), Z17, Z5
	VPANDD 384(SI), Z17, Z6
	VPANDD 448(SI), Z17, Z7
	VPMAXUD Z0, Z1, Z8
	VPMAXUD Z2, Z3, Z9
	VPMAXUD Z4, Z5, Z10
	VPMAXUD Z6, Z7, Z11
	AMAX4(Z8, Y8, X8, Z9, Z10, Z11, Z12, Z13, Y13, X13)
	VPADDD X26, X8, X9
	VPSRAD $23, X9, X9
	VPMAXSD X29, X9, X9         // codes
	VPCMPGTD X28, X9, K1
	KORTESTW K1, K1
	JNZ stop
	VPMAXUD X8, X24, X24
	VPADDD X30, X8, X8
	VPMINUD X8, X25, X25
	VPMOVDB X9, (R11)
	VPSUBD X9, X27, X9
	VPSLLD $23, X9, X9
	VMOVDQU X9, 0(SP)

	VBROADCASTSS 0(SP), Z16
	CODES((SI), Z16, Z0, Z8)
	CODES(64(SI), Z16, Z1, Z9)
	VBROADCASTSS 4(SP), Z16
	CODES(128(SI), Z16, Z2, Z10)
	CODES(192(SI), Z16, Z3, Z11)
	PACK(Z8, Z9, Z10, Z11)
	VMOVDQU64 Z8, (DI)
	ZEROS(Z8, BX)
	VBROADCASTSS 8(SP), Z16
	CODES(256(SI), Z16, Z4, Z8)
	CODES(320(SI), Z16, Z5, Z9)
	VBROADCASTSS 12(SP), Z16
	CODES(384(SI), Z16, Z6, Z10)
	CODES(448(SI), Z16, Z7, Z11)
	PACK(Z8, Z9, Z10, Z11)
	VMOVDQU64 Z8, 64(DI)
	ZEROS(Z8, BX)
	ADDQ $512, SI
	ADDQ $128, DI
	ADDQ $4, R11
	SUBQ $4, CX
	JNZ blocks

stop:
	MOVL BX, 28(R8)
	VMOVDQA32 X24, X0
	VPSHUFD $0x4e, X0, X1
	VPMAXUD X0, X1, X0
	VPSHUFD $0xb1, X0, X1
	VPMAXUD X0, X1, X0
	VMOVD X0, AX
	MOVL AX, 24(R8)
	VMOVDQA32 X25, X0
	VPSHUFD $0x4e, X0, X1
	VPMINUD X0, X1, X0
	VPSHUFD $0xb1, X0, X1
	VPMINUD X0, X1, X0
	VMOVD X0, AX
	MOVL AX, 44(R8)
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
	VPBROADCASTD bits<>+12(SB), Z15
	MOVL $-1, R15
	XORL R13, R13
	XORL BX, BX
	XORL R9, R9
	MOVL $0x3f800000, AX
	VMOVD AX, X11
	MOVL $0x7f7fffff, AX
	VMOVD AX, X13
	MOVQ CX, R10

block:
	AHEAD8
	VPANDD (SI), Z17, Z0
	VPANDD 64(SI), Z17, Z2
	VPANDD 128(SI), Z17, Z4
	VPANDD 192(SI), Z17, Z6
	VPMAXUD Z0, Z4, Z8
	VPMAXUD Z2, Z6, Z9
	VPANDD 256(SI), Z17, Z10
	VPANDD 320(SI), Z17, Z12
	VPMAXUD Z10, Z8, Z8
	VPMAXUD Z12, Z9, Z9
	VPANDD 384(SI), Z17, Z10
	VPANDD 448(SI), Z17, Z12
	VPMAXUD Z10, Z8, Z8
	VPMAXUD Z12, Z9, Z9
	VPMAXUD Z9, Z8, Z8
	REDUCE(Z8, Y8, X8, Y9, X9)
	MOVL 40(R8), DX
	CMPL AX, BX
	CMOVLHI AX, BX              // may be of a block that is not done
	CMPL AX, DX
	CMOVLCS DX, AX
	LEAL -1(AX), DX
	CMPL DX, $0x7f7fffff        // zero, infinite or NaN
	JCC stop
	VMOVD AX, X8
	VMOVSS 32(R8), X9
	VDIVSS X8, X9, X9
	VMINSS X13, X9, X9
	VMOVD X9, AX
	ANDL 36(R8), AX             // scale
	CMPL AX, $0x10000000
	JCS stop
	CMPL AX, R15
	CMOVLCS AX, R15
	CMPL AX, R13
	CMOVLHI AX, R13
	VMOVD AX, X9
	VDIVSS X9, X11, X8
	VMOVSS X8, (R11)
	VMULSS 52(R8), X9, X9
	VBROADCASTSS X9, Z16
	CODES((SI), Z16, Z0, Z1)
	CODES(64(SI), Z16, Z2, Z3)
	CODES(128(SI), Z16, Z4, Z5)
	CODES(192(SI), Z16, Z6, Z7)
	PACK(Z1, Z3, Z5, Z7)
	VMOVDQU64 Z1, (DI)
	ZEROS(Z1, R9)
	VPANDD 256(SI), Z17, Z0
	VPANDD 320(SI), Z17, Z2
	VPANDD 384(SI), Z17, Z4
	VPANDD 448(SI), Z17, Z6
	CODES(256(SI), Z16, Z0, Z1)
	CODES(320(SI), Z16, Z2, Z3)
	CODES(384(SI), Z16, Z4, Z5)
	CODES(448(SI), Z16, Z6, Z7)
	PACK(Z1, Z3, Z5, Z7)
	VMOVDQU64 Z1, 64(DI)
	ZEROS(Z1, R9)
	ADDQ $512, SI
	ADDQ $128, DI
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

// func encodeNV512(dst, scales *byte, src *float32, blocks int, r *encodeArgs) int
//
// Blocks of 16 in E2M1 with an E4M3 each, four at a time: blocks is a positive multiple of
// 4. The rest of encodeArgsNV is at 56 tensor over 6, 60 one over tensor, 64 the greatest
// E4M3 and 68 the least normal one, times 2^-13, 72 2^20, 76 2^-13, 80 2^13, 84 the greatest
// float32, 88 2^-21, which is the power of two of E2M1, 92 7·2^-21, above which E2M1
// saturates. It stops before four blocks one of which is not finite or saturates, and
// returns how many are done. The scale of a block is encoded as its elements are:
//
//	X8 amax, then the scale times 2^-13   X9 m   X10 t, whose difference to m·2^20 is the
//	scale of E4M3 times 2^-13
//
// X24 amax   X25 infinity   X26 1/6·tensor   X27 1/tensor   X28 448·2^-13   X29 2^-6·2^-13
// X30 2^20   X31 1
TEXT ·encodeNV512(SB), NOSPLIT, $16-48
	MOVQ dst+0(FP), DI
	MOVQ scales+8(FP), R11
	MOVQ src+16(FP), SI
	MOVQ blocks+24(FP), CX
	MOVQ r+32(FP), R8
	CONSTANTS(R8)
	VPXORD X24, X24, X24
	VMOVDQA32 X21, X25
	VBROADCASTSS 56(R8), X26
	VBROADCASTSS 60(R8), X27
	VBROADCASTSS 64(R8), X28
	VBROADCASTSS 68(R8), X29
	VBROADCASTSS 72(R8), X30
	MOVL $0x3f800000, AX
	VPBROADCASTD AX, X31
	MOVL $0x7f7f7f7f, AX
	VPBROADCASTD AX, Z15
	XORL BX, BX
	MOVQ CX, R10

blocks:
	AHEAD4
	VPANDD (SI), Z17, Z0
	VPANDD 64(SI), Z17, Z1
	VPANDD 128(SI), Z17, Z2
	VPANDD 192(SI), Z17, Z3
	VMOVDQA64 Z0, Z8
	VMOVDQA64 Z2, Z10
	AMAX4(Z8, Y8, X8, Z1, Z10, Z3, Z12, Z13, Y13, X13)
	VPCMPUD $5, X25, X8, K1     // infinite or NaN
	KORTESTW K1, K1
	JNZ stop
	VMOVDQA32 X8, X4

	VMULPS X26, X8, X8          // what E4M3 rounds
	VMULPS.BCST 76(R8), X8, X8
	VMINPS X28, X8, X8
	VMAXPS X29, X8, X9
	VPANDD X21, X9, X9
	VMULPS X30, X9, X11         // m·2^20
	VADDPS X11, X8, X10         // t
	VPSRLD $20, X10, X12
	VPADDD X12, X10, X12
	VPMOVDB X12, (R11)
	VSUBPS X11, X10, X10
	VMULPS.BCST 80(R8), X10, X10 // times 2^13
	VMULPS X27, X10, X10
	VDIVPS X10, X31, X10
	VMINPS.BCST 84(R8), X10, X10 // infinity is the greatest float32
	VMULPS.BCST 88(R8), X10, X10 // times 2^-21
	VMOVDQU X10, 0(SP)
	VMULPS X4, X10, X10
	VCMPPS.BCST $13, 92(R8), X10, K1 // not below
	KORTESTW K1, K1
	JNZ stop
	VPMAXUD X4, X24, X24

	VBROADCASTSS 0(SP), Z16
	CODES((SI), Z16, Z0, Z8)
	VBROADCASTSS 4(SP), Z16
	CODES(64(SI), Z16, Z1, Z9)
	VBROADCASTSS 8(SP), Z16
	CODES(128(SI), Z16, Z2, Z10)
	VBROADCASTSS 12(SP), Z16
	CODES(192(SI), Z16, Z3, Z11)
	PACK(Z8, Z9, Z10, Z11)
	ZEROS(Z8, BX)
	VPSRLW $4, Z8, Z9           // signs from bit 7 to bit 3
	VPORD Z9, Z8, Z8
	VPANDD.BCST nibble<>(SB), Z8, Z8
	VPSRLW $4, Z8, Z9           // the second of two codes
	VPORD Z9, Z8, Z8
	VPMOVWB Z8, (DI)
	ADDQ $256, SI
	ADDQ $32, DI
	ADDQ $4, R11
	SUBQ $4, CX
	JNZ blocks

stop:
	MOVL BX, 28(R8)
	VMOVDQA32 X24, X0
	VPSHUFD $0x4e, X0, X1
	VPMAXUD X0, X1, X0
	VPSHUFD $0xb1, X0, X1
	VPMAXUD X0, X1, X0
	VMOVD X0, AX
	MOVL AX, 24(R8)
	SUBQ CX, R10
	MOVQ R10, ret+40(FP)
	VZEROUPPER
	RET
