//go:build amd64 && !purego

#include "textflag.h"

// Stochastic rounding, eight elements at a time, in integers. A magnitude times its scale has a
// significand of 24 bits. If its exponent is at least that of the least normal number, 23 bits
// less the number of mantissa bits are dropped. Each binade below drops one bit more. The dropped
// bits are aligned to 32 bits. The magnitude is rounded up if their sum with a random number is at
// least 2^32.
//
// The layout of roundTable (random_asm.go), by offset: 0 most, 32 least, 64 dropped,
// 96 mantissa.
//
//	Y8 scale   Y9 0x7fffffff   Y10 least   Y11 dropped   Y12 32   Y13 -1
//	X14 mantissa               Y15 amax    Y4 to Y7 are free; R8 is roundTable
//
// DI is dst, SI src, DX random, CX the number of elements or groups left, BX the number of codes
// that stand for zero.

#define EIGHT(name, bits) \
	DATA name<>+0(SB)/8, bits   \
	DATA name<>+8(SB)/8, bits   \
	DATA name<>+16(SB)/8, bits  \
	DATA name<>+24(SB)/8, bits  \
	GLOBL name<>(SB), RODATA|NOPTR, $32

EIGHT(fraction, $0x007fffff007fffff)
EIGHT(hidden, $0x0080000000800000)
EIGHT(width, $0x0000002000000020)
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

#define CONSTANTS \
	VPCMPEQD Y13, Y13, Y13      \
	VPSRLD $1, Y13, Y9          \
	VMOVDQU 32(R8), Y10         \
	VMOVDQU 64(R8), Y11         \
	VMOVDQU width<>(SB), Y12    \
	VMOVQ 96(R8), X14           \
	VPXOR Y15, Y15, Y15         \
	XORL BX, BX

// CODES stores the codes of the eight elements at from in double words of x.
#define CODES(from, random, x) \
	VPAND from, Y9, x           \
	VPMAXUD x, Y15, Y15         \
	VMULPS Y8, x, x             \
	VMINPS 0(R8), x, x          \ // saturated
	VPSRLD $23, x, Y4           \
	VPSUBUSW Y10, Y4, Y5        \ // binades above the least normal one
	VPSUBUSW Y4, Y10, Y4        \ // and below
	VPADDD Y11, Y4, Y4          \ // bits that are dropped
	VPAND fraction<>(SB), x, x  \
	VPOR hidden<>(SB), x, x     \
	VPSUBD Y12, Y4, Y6          \
	VPSUBD Y4, Y12, Y7          \
	VPSRLVD Y4, x, Y4           \ // what is left
	VPSRLVD Y6, x, Y6           \ // what is dropped, of more than 32
	VPSLLVD Y7, x, x            \ // or of less
	VPOR Y6, x, x               \
	VPADDD random, x, Y6        \
	VPMAXUD Y6, x, x            \
	VPCMPEQD Y6, x, x           \ // -1 where it has not passed 2^32
	VPSLLD X14, Y5, Y5          \
	VPADDD Y5, Y4, Y4           \
	VPSUBD Y13, Y4, Y4          \
	VPADDD x, Y4, x             \
	VMOVDQU from, Y5            \
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

// func encodeRandom256(dst *byte, src *float32, random *uint32, n int, scales *float32, step int, r *roundTable) (amax, zeros uint32)
//
// It encodes n elements, with one of random for each. Each 16 elements have a scale, and step is
// the distance between scales in bytes, or 0 if all have one scale. It returns the greatest
// magnitude and the number of codes that stand for zero. n is a positive multiple of 32.
TEXT ·encodeRandom256(SB), NOSPLIT, $0-64
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ random+16(FP), DX
	MOVQ n+24(FP), CX
	MOVQ scales+32(FP), R11
	MOVQ step+40(FP), R12
	MOVQ r+48(FP), R8
	CONSTANTS

encode:
	VBROADCASTSS (R11), Y8
	ADDQ R12, R11
	CODES((SI), (DX), Y0)
	CODES(32(SI), 32(DX), Y1)
	VBROADCASTSS (R11), Y8
	ADDQ R12, R11
	CODES(64(SI), 64(DX), Y2)
	CODES(96(SI), 96(DX), Y3)
	VPACKUSDW Y1, Y0, Y0        // 0 8 | 4 12, four words each
	VPACKUSDW Y3, Y2, Y2
	VPACKUSWB Y2, Y0, Y0        // 0 8 16 24 | 4 12 20 28, four bytes each
	VMOVDQU order<>(SB), Y4
	VPERMD Y0, Y4, Y0
	VMOVDQU Y0, (DI)
	ZEROS(Y0)
	ADDQ $128, SI
	ADDQ $128, DX
	ADDQ $32, DI
	SUBQ $32, CX
	JNZ encode

	MOVL BX, zeros+60(FP)
	MOST
	MOVL AX, amax+56(FP)
	VZEROUPPER
	RET

// ROW is CODES for a row of eight columns, and moves on to the next row.
#define ROW(y) \
	CODES((SI), (DX), y)        \
	ADDQ R12, SI                \
	ADDQ $64, DX

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
	VMOVDQU x, (R13)            \
	VEXTRACTI128 $1, y, (R13)(R9*4) \
	ADDQ R9, R13

// func encodeRandomColumns256(dst *byte, dstStride int, src *float32, srcStride int, random *uint32, groups int, scales *float32, r *roundTable) (amax, zeros uint32)
//
// It encodes eight columns of 16·groups rows, as encodeColumns256 does, and returns what
// encodeRandom256 returns. The random numbers of a row are 64 bytes behind those of the row before.
TEXT ·encodeRandomColumns256(SB), NOSPLIT, $128-72
	MOVQ dst+0(FP), DI
	MOVQ dstStride+8(FP), R9
	MOVQ src+16(FP), SI
	MOVQ srcStride+24(FP), R12
	MOVQ random+32(FP), DX
	MOVQ groups+40(FP), CX
	MOVQ scales+48(FP), R11
	MOVQ r+56(FP), R8
	CONSTANTS
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
	MOVQ DI, R13
	SAVE(X0, Y0)
	SAVE(X1, Y1)
	SAVE(X2, Y2)
	SAVE(X3, Y3)
	ADDQ $16, DI
	DECQ CX
	JNZ group

	MOVL BX, zeros+68(FP)
	MOST
	MOVL AX, amax+64(FP)
	VZEROUPPER
	RET
