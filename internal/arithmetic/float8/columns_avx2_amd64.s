//go:build amd64 && !purego

#include "textflag.h"

// Columns are encoded as with AVX-512 (columns_avx512_amd64.s), but eight at a time. Each column
// has a lane of the registers.
//
//	Y8 scales   Y9 0x7fffffff   Y10 most   Y11 normal   Y12 ulp
//	Y13 0x7f800000   X14 shift  Y15 amax   Y4 and Y5 are free

#define EIGHT(name, bits) \
	DATA name<>+0(SB)/8, bits   \
	DATA name<>+8(SB)/8, bits   \
	DATA name<>+16(SB)/8, bits  \
	DATA name<>+24(SB)/8, bits  \
	GLOBL name<>(SB), RODATA|NOPTR, $32

EIGHT(seven, $0x0000007f0000007f)
EIGHT(sign, $0x0000008000000080)

DATA order<>+0(SB)/8, $0x0000000400000000
DATA order<>+8(SB)/8, $0x0000000500000001
DATA order<>+16(SB)/8, $0x0000000600000002
DATA order<>+24(SB)/8, $0x0000000700000003
GLOBL order<>(SB), RODATA|NOPTR, $32

DATA turn<>+0(SB)/8, $0x0d0905010c080400
DATA turn<>+8(SB)/8, $0x0f0b07030e0a0602
DATA turn<>+16(SB)/8, $0x0d0905010c080400
DATA turn<>+24(SB)/8, $0x0f0b07030e0a0602
GLOBL turn<>(SB), RODATA|NOPTR, $32

#define CONSTANTS(r) \
	VPCMPEQD Y9, Y9, Y9         \
	VPSRLD $1, Y9, Y9           \
	VBROADCASTSS 4(r), Y10      \
	VBROADCASTSS 8(r), Y11      \
	VBROADCASTSS 12(r), Y12     \
	MOVL $0x7f800000, AX        \
	VMOVD AX, X13               \
	VPBROADCASTD X13, Y13       \
	VMOVQ 16(r), X14            \
	VPXOR Y15, Y15, Y15         \
	XORL BX, BX

// CODES stores the codes of eight elements in double words of x; see encode_avx2_amd64.s.
#define CODES(from, x) \
	VMOVUPS from, Y5            \
	VPAND Y9, Y5, x             \
	VPMAXUD x, Y15, Y15         \
	VMULPS Y8, x, x             \
	VMINPS Y10, x, x            \
	VMAXPS Y11, x, Y4           \
	VPAND Y13, Y4, Y4           \
	VFMADD213PS x, Y12, Y4      \
	VPSRLD X14, Y4, x           \
	VPADDD x, Y4, x             \
	VPAND seven<>(SB), x, x     \
	VPSRLD $24, Y5, Y5          \
	VPAND sign<>(SB), Y5, Y5    \
	VPOR Y5, x, x

// ZEROS adds the number of codes in y that stand for zero to BX. It overwrites Y4, Y5 and AX.
#define ZEROS(y) \
	VPADDB y, y, Y5             \
	VPXOR Y4, Y4, Y4            \
	VPCMPEQB Y4, Y5, Y5         \
	VPMOVMSKB Y5, AX            \
	POPCNTL AX, AX              \
	ADDL AX, BX

// MOST stores the greatest double word of Y15 in AX.
#define MOST \
	VEXTRACTI128 $1, Y15, X1    \
	VPMAXUD X1, X15, X0         \
	VPSHUFD $0x4e, X0, X1       \
	VPMAXUD X1, X0, X0          \
	VPSHUFD $0xb1, X0, X1       \
	VPMAXUD X1, X0, X0          \
	VMOVD X0, AX

// func encodeScaled256(dst *byte, src *float32, n int, scales *float32, r *encodeArgs)
//
// It encodes n elements, with one of scales for each 16. n is a positive multiple of 32.
TEXT ·encodeScaled256(SB), NOSPLIT, $0-40
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX
	MOVQ scales+24(FP), R11
	MOVQ r+32(FP), R8
	CONSTANTS(R8)

encode:
	VBROADCASTSS (R11), Y8
	CODES((SI), Y0)
	CODES(32(SI), Y1)
	VBROADCASTSS 4(R11), Y8
	CODES(64(SI), Y2)
	CODES(96(SI), Y3)
	VPACKUSDW Y1, Y0, Y0        // 0 8 | 4 12, four words each
	VPACKUSDW Y3, Y2, Y2
	VPACKUSWB Y2, Y0, Y0        // 0 8 16 24 | 4 12 20 28, four bytes each
	VMOVDQU order<>(SB), Y4
	VPERMD Y0, Y4, Y0
	VMOVDQU Y0, (DI)
	ZEROS(Y0)
	ADDQ $8, R11
	ADDQ $128, SI
	ADDQ $32, DI
	SUBQ $32, CX
	JNZ encode

	MOVL BX, 28(R8)
	MOST
	MOVL AX, 24(R8)
	VZEROUPPER
	RET

// ROW is CODES for a row of eight columns, and moves on to the next row.
#define ROW(y) CODES((SI), y); ADDQ R12, SI

// COLUMNS encodes four rows of eight columns. It stores the four codes of each of columns 0 to 3,
// in order, in the lower lane of 32 bytes of the stack, and those of columns 4 to 7 in the upper.
#define COLUMNS(at) \
	ROW(Y0)                     \
	ROW(Y1)                     \
	ROW(Y2)                     \
	ROW(Y3)                     \
	VPACKUSDW Y1, Y0, Y0        \
	VPACKUSDW Y3, Y2, Y2        \
	VPACKUSWB Y2, Y0, Y0        \
	VPSHUFB turn<>(SB), Y0, Y0  \
	VMOVDQU Y0, at(SP)          \
	ZEROS(Y0)

// SAVE stores sixteen codes of a column from each lane: of columns j and j+4.
#define SAVE(x, y) \
	VMOVDQU x, (DX)             \
	VEXTRACTI128 $1, y, (DX)(R9*4) \
	ADDQ R9, DX

// func encodeColumns256(dst *byte, dstStride int, src *float32, srcStride, groups int, scales *float32, r *encodeArgs)
//
// It does for eight columns what encodeColumns512 does for sixteen.
TEXT ·encodeColumns256(SB), NOSPLIT, $128-56
	MOVQ dst+0(FP), DI
	MOVQ dstStride+8(FP), R9
	MOVQ src+16(FP), SI
	MOVQ srcStride+24(FP), R12
	MOVQ groups+32(FP), CX
	MOVQ scales+40(FP), R11
	MOVQ r+48(FP), R8
	CONSTANTS(R8)
	VMOVUPS (R11), Y8

group:
	COLUMNS(0)
	COLUMNS(32)
	COLUMNS(64)
	COLUMNS(96)
	VMOVDQU 0(SP), Y0
	VMOVDQU 32(SP), Y1
	VMOVDQU 64(SP), Y2
	VMOVDQU 96(SP), Y3
	VPUNPCKLDQ Y1, Y0, Y4       // columns 0 and 1 of each lane, rows 0 to 7
	VPUNPCKHDQ Y1, Y0, Y5       // 2 and 3
	VPUNPCKLDQ Y3, Y2, Y6       // rows 8 to 15
	VPUNPCKHDQ Y3, Y2, Y7
	VPUNPCKLQDQ Y6, Y4, Y0
	VPUNPCKHQDQ Y6, Y4, Y1
	VPUNPCKLQDQ Y7, Y5, Y2
	VPUNPCKHQDQ Y7, Y5, Y3
	MOVQ DI, DX
	SAVE(X0, Y0)
	SAVE(X1, Y1)
	SAVE(X2, Y2)
	SAVE(X3, Y3)
	ADDQ $16, DI
	DECQ CX
	JNZ group

	MOVL BX, 28(R8)
	MOST
	MOVL AX, 24(R8)
	VZEROUPPER
	RET

// func amaxColumns256(src *float32, stride, rows int, amax *uint32)
//
// It stores the greatest magnitude of each of eight columns in amax. The number of rows is even.
TEXT ·amaxColumns256(SB), NOSPLIT, $0-32
	MOVQ src+0(FP), SI
	MOVQ stride+8(FP), R12
	MOVQ rows+16(FP), CX
	MOVQ amax+24(FP), DI
	VPCMPEQD Y9, Y9, Y9
	VPSRLD $1, Y9, Y9
	VPXOR Y0, Y0, Y0
	VPXOR Y1, Y1, Y1

two:
	VPAND (SI), Y9, Y2
	VPMAXUD Y2, Y0, Y0
	VPAND (SI)(R12*1), Y9, Y3
	VPMAXUD Y3, Y1, Y1
	LEAQ (SI)(R12*2), SI
	SUBQ $2, CX
	JNZ two
	VPMAXUD Y1, Y0, Y0
	VMOVDQU Y0, (DI)
	VZEROUPPER
	RET

// func zeroColumns256(src *float32, stride, rows int) int
//
// It returns the number of elements of eight columns that are zero.
TEXT ·zeroColumns256(SB), NOSPLIT, $0-32
	MOVQ src+0(FP), SI
	MOVQ stride+8(FP), R12
	MOVQ rows+16(FP), CX
	VPXOR Y0, Y0, Y0
	VPXOR Y1, Y1, Y1

row:
	VMOVDQU (SI), Y2
	VPADDD Y2, Y2, Y2
	VPCMPEQD Y0, Y2, Y2
	VPSUBD Y2, Y1, Y1
	ADDQ R12, SI
	DECQ CX
	JNZ row
	VEXTRACTI128 $1, Y1, X0
	VPADDD X1, X0, X0
	VPHADDD X0, X0, X0
	VPHADDD X0, X0, X0
	VMOVD X0, AX
	MOVQ AX, ret+24(FP)
	VZEROUPPER
	RET
