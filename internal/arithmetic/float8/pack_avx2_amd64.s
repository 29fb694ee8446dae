//go:build amd64 && !purego

#include "textflag.h"

// Packing works as with AVX-512 (pack_avx512_amd64.s), but on eight rows at a time: three rounds of
// unpacking turn eight rows of 16 codes into eight registers, each with two columns of eight
// codes. The rounds alternate between X0..X7 and X8..X15.
//
// The constants for decoding E4M3 are words, repeated in 16 bytes each: at 0(SP) a mask that
// removes the copy of the sign, at 16(SP) the code 0x7f of NaN, in X6 the NaN of a float16. Y7 is
// 256.

#define LOAD(x) VMOVDQU (SI), x; ADDQ R8, SI
#define UNPACK(a, b, lo, hi) VPUNPCKLBW b, a, lo; VPUNPCKHBW b, a, hi

#define FORTH \
	UNPACK(X0, X4, X8, X9); \
	UNPACK(X1, X5, X10, X11); \
	UNPACK(X2, X6, X12, X13); \
	UNPACK(X3, X7, X14, X15)

#define BACK \
	UNPACK(X8, X12, X0, X1); \
	UNPACK(X9, X13, X2, X3); \
	UNPACK(X10, X14, X4, X5); \
	UNPACK(X11, X15, X6, X7)

// HALF4 decodes the words of x, which have codes of E4M3 in their upper bytes, to eight elements.
#define HALF4(x, y, at) \
	VPSRAW $1, x, x             \
	VPAND 0(SP), x, x           \
	VPSLLW $1, x, X2            \
	VPCMPEQW 16(SP), X2, X2     \
	VPBLENDVB X2, X6, x, x      \
	VCVTPH2PS x, y              \
	VMULPS Y7, y, y             \
	VMOVUPS y, at(DI)

#define E4M3(x, at) \
	VPUNPCKLBW x, X5, X3        \
	VPUNPCKHBW x, X5, X4        \
	HALF4(X3, Y3, at)           \
	HALF4(X4, Y4, (at+64))

#define E5M2(x, at) \
	VPUNPCKLBW x, X5, X3        \
	VPUNPCKHBW x, X5, X4        \
	VCVTPH2PS X3, Y3            \
	VCVTPH2PS X4, Y4            \
	VMOVUPS Y3, at(DI)          \
	VMOVUPS Y4, (at+64)(DI)

// SCALED is E5M2, with a multiplication by the factors in Y7.
#define SCALED(x, at) \
	VPUNPCKLBW x, X5, X3        \
	VPUNPCKHBW x, X5, X4        \
	VCVTPH2PS X3, Y3            \
	VCVTPH2PS X4, Y4            \
	VMULPS Y7, Y3, Y3           \
	VMULPS Y7, Y4, Y4           \
	VMOVUPS Y3, at(DI)          \
	VMOVUPS Y4, (at+64)(DI)

// func pack256(dst *float32, codes *byte, stride, blocks int, e4m3 bool)
TEXT ·pack256(SB), NOSPLIT, $32-33
	MOVQ dst+0(FP), DI
	MOVQ codes+8(FP), DX
	MOVQ stride+16(FP), R8
	MOVQ blocks+24(FP), CX
	MOVBLZX e4m3+32(FP), R9
	MOVL $0xbfffbfff, AX
	VMOVD AX, X0
	VPBROADCASTD X0, X0
	VMOVDQU X0, 0(SP)
	MOVL $0x7f007f00, AX
	VMOVD AX, X0
	VPBROADCASTD X0, X0
	VMOVDQU X0, 16(SP)

block:
	MOVQ DX, SI

	LOAD(X0)
	LOAD(X1)
	LOAD(X2)
	LOAD(X3)
	LOAD(X4)
	LOAD(X5)
	LOAD(X6)
	LOAD(X7)
	FORTH
	BACK
	FORTH
	VPXOR X5, X5, X5
	TESTL R9, R9
	JZ e5m2
	MOVL $0x7e007e00, AX
	VMOVD AX, X6
	VPBROADCASTD X6, X6
	MOVL $0x43800000, AX
	VMOVD AX, X7
	VPBROADCASTD X7, Y7
	E4M3(X8, 0)
	E4M3(X9, 128)
	E4M3(X10, 256)
	E4M3(X11, 384)
	E4M3(X12, 512)
	E4M3(X13, 640)
	E4M3(X14, 768)
	E4M3(X15, 896)
	JMP next

e5m2:
	E5M2(X8, 0)
	E5M2(X9, 128)
	E5M2(X10, 256)
	E5M2(X11, 384)
	E5M2(X12, 512)
	E5M2(X13, 640)
	E5M2(X14, 768)
	E5M2(X15, 896)

next:
	ADDQ $1024, DI
	ADDQ $16, DX
	DECQ CX
	JNZ block
	VZEROUPPER
	RET

// func packScaled256(dst *float32, codes *byte, stride, blocks int, factors *float32)
//
// It does for eight rows what packScaled512 does for 32. There are 16 factors for each block, and
// the first eight are for these rows.
TEXT ·packScaled256(SB), NOSPLIT, $0-40
	MOVQ dst+0(FP), DI
	MOVQ codes+8(FP), DX
	MOVQ stride+16(FP), R8
	MOVQ blocks+24(FP), CX
	MOVQ factors+32(FP), R11

block:
	MOVQ DX, SI

	LOAD(X0)
	LOAD(X1)
	LOAD(X2)
	LOAD(X3)
	LOAD(X4)
	LOAD(X5)
	LOAD(X6)
	LOAD(X7)
	FORTH
	BACK
	FORTH
	VPXOR X5, X5, X5
	VMOVUPS (R11), Y7
	SCALED(X8, 0)
	SCALED(X9, 128)
	SCALED(X10, 256)
	SCALED(X11, 384)
	SCALED(X12, 512)
	SCALED(X13, 640)
	SCALED(X14, 768)
	SCALED(X15, 896)
	ADDQ $1024, DI
	ADDQ $16, DX
	ADDQ $64, R11
	DECQ CX
	JNZ block
	VZEROUPPER
	RET

// Codes of E5M2 with the values of E2M1.
DATA fivetwo<>+0(SB)/8, $0x464442403e3c3800
DATA fivetwo<>+8(SB)/8, $0xc6c4c2c0bebcb880
DATA fivetwo<>+16(SB)/8, $0x464442403e3c3800
DATA fivetwo<>+24(SB)/8, $0xc6c4c2c0bebcb880
GLOBL fivetwo<>(SB), RODATA|NOPTR, $32

// func widen256(dst, src *byte, n int)
//
// It turns n codes of E2M1, two in a byte, into codes of E5M2, one in a byte. n is a positive
// multiple of 32.
TEXT ·widen256(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX
	VMOVDQU fivetwo<>(SB), Y2
	MOVL $0x0f0f0f0f, AX
	VMOVD AX, X3
	VPBROADCASTD X3, Y3

codes:
	VPMOVZXBW (SI), Y0
	VPSLLW $4, Y0, Y1
	VPOR Y1, Y0, Y0
	VPAND Y3, Y0, Y0
	VPSHUFB Y0, Y2, Y0
	VMOVDQU Y0, (DI)
	ADDQ $16, SI
	ADDQ $32, DI
	SUBQ $32, CX
	JNZ codes
	VZEROUPPER
	RET
