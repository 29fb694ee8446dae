//go:build amd64 && !purego

#include "textflag.h"

// Columns of a matrix of float32, sixteen at a time, become rows of codes. Each column has a
// lane of the registers: its greatest magnitude is found and its elements are scaled and encoded
// without a step across lanes, and only codes are transposed. For the encoding see
// encode_avx2_amd64.s.
//
//	Z16 scales   Z17 0x7fffffff   Z18 most   Z19 normal   Z20 ulp   Z21 0x7f800000
//	Z22 0x7f     Z23 transposes four by four bytes   Z24 amax       X14 shift
//	Z15 0x7f of each byte

DATA bits<>+0(SB)/4, $0x7fffffff
DATA bits<>+4(SB)/4, $0x7f800000
DATA bits<>+8(SB)/4, $0x7f
DATA bits<>+12(SB)/4, $0x7f7f7f7f
GLOBL bits<>(SB), RODATA|NOPTR, $16

DATA turn<>+0(SB)/8, $0x0d0905010c080400
DATA turn<>+8(SB)/8, $0x0f0b07030e0a0602
GLOBL turn<>(SB), RODATA|NOPTR, $16

// CODES stores the codes of the row at SI in double words of y, and moves on to the next row.
#define CODES(x, y) \
	VMOVUPS (SI), Z31           \
	VPANDD Z31, Z17, x          \
	VPMAXUD x, Z24, Z24         \
	VMULPS Z16, x, x            \
	VMINPS Z18, x, x            \
	VMAXPS Z19, x, y            \
	VPANDD Z21, y, y            \
	VFMADD213PS x, Z20, y       \
	VPSRLD X14, y, x            \
	VPADDD x, y, y              \
	VPSRLD $24, Z31, x          \
	VPTERNLOGD $0xe4, Z22, x, y \
	ADDQ R12, SI

// FOUR encodes four rows of sixteen columns. Lane l of z gets the four codes of each of columns
// 4l to 4l+3, in order. It adds the number of codes that stand for zero to BX.
#define FOUR(z) \
	CODES(Z25, z)               \
	CODES(Z26, Z27)             \
	CODES(Z25, Z28)             \
	CODES(Z26, Z29)             \
	VPACKUSDW Z27, z, z         \
	VPACKUSDW Z29, Z28, Z28     \
	VPACKUSWB Z28, z, z         \
	VPSHUFB Z23, z, z           \
	VPTESTNMB Z15, z, K1        \
	KMOVQ K1, AX                \
	POPCNTQ AX, AX              \
	ADDL AX, BX

// SAVE stores sixteen codes of a column from each lane: of columns j, j+4, j+8 and j+12.
#define SAVE(x, z) \
	VMOVDQU x, (DX)             \
	VEXTRACTI32X4 $1, z, (DX)(R9*4) \
	VEXTRACTI32X4 $2, z, (DX)(R9*8) \
	VEXTRACTI32X4 $3, z, (DX)(R10*4) \
	ADDQ R9, DX

// func encodeColumns512(dst *byte, dstStride int, src *float32, srcStride, groups int, scales *float32, r *encodeArgs)
//
// It encodes sixteen columns of 16·groups rows, with one of scales for each column. groups is at
// least 1. Strides are in bytes.
TEXT ·encodeColumns512(SB), NOSPLIT, $0-56
	MOVQ dst+0(FP), DI
	MOVQ dstStride+8(FP), R9
	MOVQ src+16(FP), SI
	MOVQ srcStride+24(FP), R12
	MOVQ groups+32(FP), CX
	MOVQ scales+40(FP), R11
	MOVQ r+48(FP), R8
	LEAQ (R9)(R9*2), R10
	VMOVUPS (R11), Z16
	VPBROADCASTD bits<>+0(SB), Z17
	VBROADCASTSS 4(R8), Z18
	VBROADCASTSS 8(R8), Z19
	VBROADCASTSS 12(R8), Z20
	VPBROADCASTD bits<>+4(SB), Z21
	VPBROADCASTD bits<>+8(SB), Z22
	VBROADCASTI32X4 turn<>(SB), Z23
	VMOVQ 16(R8), X14
	VPBROADCASTD bits<>+12(SB), Z15
	VPXORD Z24, Z24, Z24
	XORL BX, BX

group:
	FOUR(Z0)
	FOUR(Z1)
	FOUR(Z2)
	FOUR(Z3)
	VPUNPCKLDQ Z1, Z0, Z4       // columns 0 and 1 of each lane, rows 0 to 7
	VPUNPCKHDQ Z1, Z0, Z5       // 2 and 3
	VPUNPCKLDQ Z3, Z2, Z6       // rows 8 to 15
	VPUNPCKHDQ Z3, Z2, Z7
	VPUNPCKLQDQ Z6, Z4, Z0
	VPUNPCKHQDQ Z6, Z4, Z1
	VPUNPCKLQDQ Z7, Z5, Z2
	VPUNPCKHQDQ Z7, Z5, Z3
	MOVQ DI, DX
	SAVE(X0, Z0)
	SAVE(X1, Z1)
	SAVE(X2, Z2)
	SAVE(X3, Z3)
	ADDQ $16, DI
	DECQ CX
	JNZ group

	MOVL BX, 28(R8)
	VEXTRACTI64X4 $1, Z24, Y0
	VPMAXUD Y24, Y0, Y0
	VEXTRACTI128 $1, Y0, X1
	VPMAXUD X1, X0, X0
	VPSHUFD $0x4e, X0, X1
	VPMAXUD X1, X0, X0
	VPSHUFD $0xb1, X0, X1
	VPMAXUD X1, X0, X0
	VMOVD X0, AX
	MOVL AX, 24(R8)
	VZEROUPPER
	RET

// func amaxColumns512(src *float32, stride, rows int, amax *uint32)
//
// It stores the greatest magnitude of each of sixteen columns in amax. The number of rows is
// even.
TEXT ·amaxColumns512(SB), NOSPLIT, $0-32
	MOVQ src+0(FP), SI
	MOVQ stride+8(FP), R12
	MOVQ rows+16(FP), CX
	MOVQ amax+24(FP), DI
	VPBROADCASTD bits<>+0(SB), Z17
	VPXORD Z0, Z0, Z0
	VPXORD Z1, Z1, Z1
two:
	VPANDD (SI), Z17, Z2
	VPANDD (SI)(R12*1), Z17, Z3
	VPMAXUD Z2, Z0, Z0
	VPMAXUD Z3, Z1, Z1
	LEAQ (SI)(R12*2), SI
	SUBQ $2, CX
	JNZ two
	VPMAXUD Z1, Z0, Z0
	VMOVDQU32 Z0, (DI)
	VZEROUPPER
	RET

// func scaleColumns512(src *float32, stride int, codes *byte, scales *float32, r *encodeArgs) bool
//
// For sixteen columns of 32 rows in MX32 it stores the codes of the scales in codes, and the
// factors by which elements are multiplied in scales. It reads these fields of r, by offset: 32
// up, whose sum with an amax is divided by 2^23 to give the code of the scale, 36 one, from which
// the code is subtracted to give the exponent of the factor, 40 top, the greatest code that this
// function supports. It lowers 44 least to the least nonzero amax minus 1. If a code exceeds top
// it returns false and stores nothing.
TEXT ·scaleColumns512(SB), NOSPLIT, $0-41
	MOVQ src+0(FP), SI
	MOVQ stride+8(FP), R12
	MOVQ codes+16(FP), DX
	MOVQ scales+24(FP), DI
	MOVQ r+32(FP), R8
	VPBROADCASTD bits<>+0(SB), Z17
	VPXORD Z0, Z0, Z0
	VPXORD Z1, Z1, Z1
	MOVQ $16, CX
two:
	VPANDD (SI), Z17, Z2
	VPANDD (SI)(R12*1), Z17, Z3
	VPMAXUD Z2, Z0, Z0
	VPMAXUD Z3, Z1, Z1
	LEAQ (SI)(R12*2), SI
	DECQ CX
	JNZ two
	VPMAXUD Z1, Z0, Z0
	VPADDD.BCST 32(R8), Z0, Z1
	VPSRAD $23, Z1, Z1
	VPXORD Z2, Z2, Z2
	VPMAXSD Z2, Z1, Z1          // codes
	VPCMPGTD.BCST 40(R8), Z1, K1
	KORTESTW K1, K1
	JNZ great
	VPMOVDB Z1, (DX)
	VPBROADCASTD 36(R8), Z2
	VPSUBD Z1, Z2, Z1
	VPSLLD $23, Z1, Z1
	VMOVDQU32 Z1, (DI)
	VPTERNLOGD $0xff, Z2, Z2, Z2
	VPADDD Z2, Z0, Z0           // amax - 1
	VEXTRACTI64X4 $1, Z0, Y1
	VPMINUD Y0, Y1, Y0
	VEXTRACTI128 $1, Y0, X1
	VPMINUD X0, X1, X0
	VPSHUFD $0x4e, X0, X1
	VPMINUD X0, X1, X0
	VPSHUFD $0xb1, X0, X1
	VPMINUD X0, X1, X0
	VMOVD X0, AX
	CMPL AX, 44(R8)
	JCC more
	MOVL AX, 44(R8)
more:
	MOVB $1, ret+40(FP)
	VZEROUPPER
	RET

great:
	MOVB $0, ret+40(FP)
	VZEROUPPER
	RET
