//go:build amd64 && !purego

#include "textflag.h"

// Stochastic rounding for AVX-512, sixteen elements at a time, in whole numbers: a
// magnitude times its scale is a significand of 24 bits, and what an exponent at or above
// that of the least normal number drops of it is 23 bits less the mantissa's; each binade
// below drops one more. The bits that are dropped, moved up to 32, plus a random number
// pass 2^32 where it goes up.
//
// The layout of roundTable (random_amd64.go), by offset: 0 most, 32 least, 64 dropped,
// 96 mantissa.
//
//	Z16 scale      Z17 0x7fffffff   Z18 most         Z19 least
//	Z20 dropped    Z21 32           Z22 0x7f         Z23 order of packed codes
//	Z24 amax       Z25 0x7fffff     Z26 0x800000     Z27 -1
//	Z15 0x7f of each byte           X14 mantissa     Z28 to Z31 are free
//
// DI is dst, SI src, DX random, CX what is left, BX the codes of zero.

DATA bits<>+0(SB)/4, $0x7fffffff
DATA bits<>+4(SB)/4, $0x7fffff
DATA bits<>+8(SB)/4, $0x800000
DATA bits<>+12(SB)/4, $0x7f7f7f7f
DATA bits<>+16(SB)/4, $32
DATA bits<>+20(SB)/4, $0x7f
GLOBL bits<>(SB), RODATA|NOPTR, $24

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

DATA turn<>+0(SB)/8, $0x0d0905010c080400
DATA turn<>+8(SB)/8, $0x0f0b07030e0a0602
GLOBL turn<>(SB), RODATA|NOPTR, $16

#define CONSTANTS(r) \
	VPBROADCASTD bits<>+0(SB), Z17  \
	VBROADCASTSS 0(r), Z18          \
	VPBROADCASTD 32(r), Z19         \
	VPBROADCASTD 64(r), Z20         \
	VPBROADCASTD bits<>+16(SB), Z21 \
	VPBROADCASTD bits<>+20(SB), Z22 \
	VPXORD Z24, Z24, Z24            \
	VPBROADCASTD bits<>+4(SB), Z25  \
	VPBROADCASTD bits<>+8(SB), Z26  \
	VPTERNLOGD $0xff, Z27, Z27, Z27 \
	VPBROADCASTD bits<>+12(SB), Z15 \
	VMOVQ 96(r), X14                \
	XORL BX, BX

// CODES makes codes of the elements at from, in double words of y.
#define CODES(from, random, x, y) \
	VPANDD from, Z17, x         \
	VPMAXUD x, Z24, Z24         \
	VMULPS Z16, x, x            \
	VMINPS Z18, x, x            \ // saturated
	VPSRLD $23, x, y            \
	VPSUBUSW Z19, y, Z28        \ // binades above the least normal one
	VPSUBUSW y, Z19, y          \ // and below
	VPADDD Z20, y, y            \ // bits that are dropped
	VPTERNLOGD $0xea, Z26, Z25, x \ // the significand: x&Z25 | Z26
	VPSUBD Z21, y, Z29          \
	VPSUBD y, Z21, Z30          \
	VPSRLVD y, x, y             \ // what is left
	VPSRLVD Z29, x, Z29         \ // what is dropped, of more than 32
	VPSLLVD Z30, x, x           \ // or of less
	VPORD Z29, x, x             \
	VPADDD random, x, Z29       \
	VPCMPUD $1, x, Z29, K1      \ // has passed 2^32
	VPSLLD X14, Z28, Z28        \
	VPADDD Z28, y, y            \
	VPSUBD Z27, y, K1, y        \
	VPSRLD $24, from, x         \ // the sign on top of a byte
	VPTERNLOGD $0xe4, Z22, x, y   // y&0x7f | x&^0x7f

// ZEROS adds to BX the number of codes of zero in z.
#define ZEROS(z) \
	VPTESTNMB Z15, z, K1        \
	KMOVQ K1, AX                \
	POPCNTQ AX, AX              \
	ADDL AX, BX

// MOST leaves the greatest double word of Z24 in AX.
#define MOST \
	VEXTRACTI64X4 $1, Z24, Y0   \
	VPMAXUD Y24, Y0, Y0         \
	VEXTRACTI128 $1, Y0, X1     \
	VPMAXUD X1, X0, X0          \
	VPSHUFD $0x4e, X0, X1       \
	VPMAXUD X1, X0, X0          \
	VPSHUFD $0xb1, X0, X1       \
	VPMAXUD X1, X0, X0          \
	VMOVD X0, AX

// func encodeRandom512(dst *byte, src *float32, random *uint32, n int, scales *float32, step int, r *roundTable) (amax, zeros uint32)
//
// n is a positive multiple of 64. Each 16 elements have a scale, step bytes after the one
// before.
TEXT ·encodeRandom512(SB), NOSPLIT, $0-64
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ random+16(FP), DX
	MOVQ n+24(FP), CX
	MOVQ scales+32(FP), R11
	MOVQ step+40(FP), R12
	MOVQ r+48(FP), R8
	CONSTANTS(R8)
	VMOVDQU64 order<>(SB), Z23

encode:
	VBROADCASTSS (R11), Z16
	ADDQ R12, R11
	CODES((SI), (DX), Z0, Z1)
	VBROADCASTSS (R11), Z16
	ADDQ R12, R11
	CODES(64(SI), 64(DX), Z2, Z3)
	VBROADCASTSS (R11), Z16
	ADDQ R12, R11
	CODES(128(SI), 128(DX), Z4, Z5)
	VBROADCASTSS (R11), Z16
	ADDQ R12, R11
	CODES(192(SI), 192(DX), Z6, Z7)
	VPACKUSDW Z3, Z1, Z1
	VPACKUSDW Z7, Z5, Z5
	VPACKUSWB Z5, Z1, Z1
	VPERMD Z1, Z23, Z1
	VMOVDQU64 Z1, (DI)
	ZEROS(Z1)
	ADDQ $256, SI
	ADDQ $256, DX
	ADDQ $64, DI
	SUBQ $64, CX
	JNZ encode

	MOVL BX, zeros+60(FP)
	MOST
	MOVL AX, amax+56(FP)
	VZEROUPPER
	RET

// ROW is CODES for a row of sixteen columns, and goes to the next one.
#define ROW(y) \
	CODES((SI), (DX), Z0, y)    \
	ADDQ R12, SI                \
	ADDQ $64, DX

// FOUR makes of four rows a register that has, in lane l, four codes of column 4l, then
// of the next one.
#define FOUR(z) \
	ROW(z)                      \
	ROW(Z5)                     \
	ROW(Z6)                     \
	ROW(Z7)                     \
	VPACKUSDW Z5, z, z          \
	VPACKUSDW Z7, Z6, Z6        \
	VPACKUSWB Z6, z, z          \
	VPSHUFB Z23, z, z           \
	ZEROS(z)

// SAVE stores sixteen codes of column j of each lane.
#define SAVE(x, z) \
	VMOVDQU x, (R13)            \
	VEXTRACTI32X4 $1, z, (R13)(R9*4) \
	VEXTRACTI32X4 $2, z, (R13)(R9*8) \
	VEXTRACTI32X4 $3, z, (R13)(R10*4) \
	ADDQ R9, R13

// func encodeRandomColumns512(dst *byte, dstStride int, src *float32, srcStride int, random *uint32, groups int, scales *float32, r *roundTable) (amax, zeros uint32)
//
// Sixteen columns with a scale each become rows of codes: groups of sixteen rows, at least
// one. The numbers of a row follow those of the one before. Strides are in bytes.
TEXT ·encodeRandomColumns512(SB), NOSPLIT, $0-72
	MOVQ dst+0(FP), DI
	MOVQ dstStride+8(FP), R9
	MOVQ src+16(FP), SI
	MOVQ srcStride+24(FP), R12
	MOVQ random+32(FP), DX
	MOVQ groups+40(FP), CX
	MOVQ scales+48(FP), R11
	MOVQ r+56(FP), R8
	LEAQ (R9)(R9*2), R10
	CONSTANTS(R8)
	VMOVUPS (R11), Z16
	VBROADCASTI32X4 turn<>(SB), Z23

group:
	FOUR(Z1)
	FOUR(Z2)
	FOUR(Z3)
	FOUR(Z4)
	VPUNPCKLDQ Z2, Z1, Z5       // columns 0 and 1 of each lane, rows 0 to 7
	VPUNPCKHDQ Z2, Z1, Z6       // 2 and 3
	VPUNPCKLDQ Z4, Z3, Z7       // rows 8 to 15
	VPUNPCKHDQ Z4, Z3, Z8
	VPUNPCKLQDQ Z7, Z5, Z1
	VPUNPCKHQDQ Z7, Z5, Z2
	VPUNPCKLQDQ Z8, Z6, Z3
	VPUNPCKHQDQ Z8, Z6, Z4
	MOVQ DI, R13
	SAVE(X1, Z1)
	SAVE(X2, Z2)
	SAVE(X3, Z3)
	SAVE(X4, Z4)
	ADDQ $16, DI
	DECQ CX
	JNZ group

	MOVL BX, zeros+68(FP)
	MOST
	MOVL AX, amax+64(FP)
	VZEROUPPER
	RET
