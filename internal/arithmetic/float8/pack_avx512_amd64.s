//go:build amd64 && !purego

#include "textflag.h"

// Packing: codes of rows of B become float32 in columns of a panel. The codes are first
// transposed, by four rounds of unpacking, and then decoded.
//
// At first Y(i) has 16 codes of row i in its lower lane and of row 16+i in its upper one. A round
// unpacks each pair of registers, i and i+8, to registers 2i and 2i+1 of the other sixteen
// registers. After four rounds Y(k) has column k of all 32 rows.
//
// Z30 256, Y31 0x7f of a byte, Z29 0xbfff of a word, Z28 NaN of a float16.

// LOAD reads row i in the lower lane and row i+16 in the upper one.
#define LOAD(x, y) VMOVDQU (SI), x; VINSERTI128 $1, (BX), y, y; ADDQ R8, SI; ADDQ R8, BX
#define UNPACK(a, b, lo, hi) VPUNPCKLBW b, a, lo; VPUNPCKHBW b, a, hi

#define FORTH \
	UNPACK(Y0, Y8, Y16, Y17); \
	UNPACK(Y1, Y9, Y18, Y19); \
	UNPACK(Y2, Y10, Y20, Y21); \
	UNPACK(Y3, Y11, Y22, Y23); \
	UNPACK(Y4, Y12, Y24, Y25); \
	UNPACK(Y5, Y13, Y26, Y27); \
	UNPACK(Y6, Y14, Y28, Y29); \
	UNPACK(Y7, Y15, Y30, Y31)

#define BACK \
	UNPACK(Y16, Y24, Y0, Y1); \
	UNPACK(Y17, Y25, Y2, Y3); \
	UNPACK(Y18, Y26, Y4, Y5); \
	UNPACK(Y19, Y27, Y6, Y7); \
	UNPACK(Y20, Y28, Y8, Y9); \
	UNPACK(Y21, Y29, Y10, Y11); \
	UNPACK(Y22, Y30, Y12, Y13); \
	UNPACK(Y23, Y31, Y14, Y15)

// E4M3 decodes the codes of y to 32 elements. Shifted left by seven bits, the magnitude of a code
// other than NaN is a float16 of 1/256 of its value.
#define E4M3(y, at) \
	VPANDD Y31, y, Y16          \
	VPCMPEQB Y31, Y16, K1       \
	VPMOVZXBW y, Z16            \
	VPSLLW $8, Z16, Z16         \
	VPSRAW $1, Z16, Z16         \
	VPANDD Z29, Z16, Z16        \
	VMOVDQU16 Z28, K1, Z16      \
	VEXTRACTI64X4 $1, Z16, Y18  \
	VCVTPH2PS Y16, Z17          \
	VCVTPH2PS Y18, Z18          \
	VMULPS Z30, Z17, Z17        \
	VMULPS Z30, Z18, Z18        \
	VMOVUPS Z17, at(DI)         \
	VMOVUPS Z18, (at+64)(DI)

// E5M2 decodes the codes of y to 32 elements. A code is the upper byte of a float16.
#define E5M2(y, at) \
	VPMOVZXBW y, Z16            \
	VPSLLW $8, Z16, Z16         \
	VEXTRACTI64X4 $1, Z16, Y18  \
	VCVTPH2PS Y16, Z17          \
	VCVTPH2PS Y18, Z18          \
	VMOVUPS Z17, at(DI)         \
	VMOVUPS Z18, (at+64)(DI)

// SCALED is E5M2, with a multiplication by the factors of rows 0 to 15 in Z30 and 16 to 31 in Z31.
#define SCALED(y, at) \
	VPMOVZXBW y, Z16            \
	VPSLLW $8, Z16, Z16         \
	VEXTRACTI64X4 $1, Z16, Y18  \
	VCVTPH2PS Y16, Z17          \
	VCVTPH2PS Y18, Z18          \
	VMULPS Z30, Z17, Z17        \
	VMULPS Z31, Z18, Z18        \
	VMOVUPS Z17, at(DI)         \
	VMOVUPS Z18, (at+64)(DI)

// func pack512(dst *float32, codes *byte, stride, blocks int, e4m3 bool)
TEXT ·pack512(SB), NOSPLIT, $0-33
	MOVQ dst+0(FP), DI
	MOVQ codes+8(FP), DX
	MOVQ stride+16(FP), R8
	MOVQ blocks+24(FP), CX
	MOVBLZX e4m3+32(FP), R9
	MOVQ R8, R10
	SHLQ $4, R10

block:
	MOVQ DX, SI
	LEAQ (DX)(R10*1), BX

	LOAD(X0, Y0)
	LOAD(X1, Y1)
	LOAD(X2, Y2)
	LOAD(X3, Y3)
	LOAD(X4, Y4)
	LOAD(X5, Y5)
	LOAD(X6, Y6)
	LOAD(X7, Y7)
	LOAD(X8, Y8)
	LOAD(X9, Y9)
	LOAD(X10, Y10)
	LOAD(X11, Y11)
	LOAD(X12, Y12)
	LOAD(X13, Y13)
	LOAD(X14, Y14)
	LOAD(X15, Y15)
	FORTH
	BACK
	FORTH
	BACK
	TESTL R9, R9
	JZ e5m2
	MOVL $0x43800000, AX
	VPBROADCASTD AX, Z30
	MOVL $0x7f7f7f7f, AX
	VPBROADCASTD AX, Y31
	MOVL $0xbfffbfff, AX
	VPBROADCASTD AX, Z29
	MOVL $0x7e007e00, AX
	VPBROADCASTD AX, Z28
	E4M3(Y0, 0)
	E4M3(Y1, 128)
	E4M3(Y2, 256)
	E4M3(Y3, 384)
	E4M3(Y4, 512)
	E4M3(Y5, 640)
	E4M3(Y6, 768)
	E4M3(Y7, 896)
	E4M3(Y8, 1024)
	E4M3(Y9, 1152)
	E4M3(Y10, 1280)
	E4M3(Y11, 1408)
	E4M3(Y12, 1536)
	E4M3(Y13, 1664)
	E4M3(Y14, 1792)
	E4M3(Y15, 1920)
	JMP next

e5m2:
	E5M2(Y0, 0)
	E5M2(Y1, 128)
	E5M2(Y2, 256)
	E5M2(Y3, 384)
	E5M2(Y4, 512)
	E5M2(Y5, 640)
	E5M2(Y6, 768)
	E5M2(Y7, 896)
	E5M2(Y8, 1024)
	E5M2(Y9, 1152)
	E5M2(Y10, 1280)
	E5M2(Y11, 1408)
	E5M2(Y12, 1536)
	E5M2(Y13, 1664)
	E5M2(Y14, 1792)
	E5M2(Y15, 1920)

next:
	ADDQ $2048, DI
	ADDQ $16, DX
	DECQ CX
	JNZ block
	VZEROUPPER
	RET

// func packScaled512(dst *float32, codes *byte, stride, blocks int, factors *float32)
//
// It packs codes of E5M2. Each block of 16 codes of a row is multiplied by a factor; factors has 32
// for each block, one for each row.
TEXT ·packScaled512(SB), NOSPLIT, $0-40
	MOVQ dst+0(FP), DI
	MOVQ codes+8(FP), DX
	MOVQ stride+16(FP), R8
	MOVQ blocks+24(FP), CX
	MOVQ factors+32(FP), R11
	MOVQ R8, R10
	SHLQ $4, R10

block:
	MOVQ DX, SI
	LEAQ (DX)(R10*1), BX

	LOAD(X0, Y0)
	LOAD(X1, Y1)
	LOAD(X2, Y2)
	LOAD(X3, Y3)
	LOAD(X4, Y4)
	LOAD(X5, Y5)
	LOAD(X6, Y6)
	LOAD(X7, Y7)
	LOAD(X8, Y8)
	LOAD(X9, Y9)
	LOAD(X10, Y10)
	LOAD(X11, Y11)
	LOAD(X12, Y12)
	LOAD(X13, Y13)
	LOAD(X14, Y14)
	LOAD(X15, Y15)
	FORTH
	BACK
	FORTH
	BACK
	VMOVUPS (R11), Z30
	VMOVUPS 64(R11), Z31
	SCALED(Y0, 0)
	SCALED(Y1, 128)
	SCALED(Y2, 256)
	SCALED(Y3, 384)
	SCALED(Y4, 512)
	SCALED(Y5, 640)
	SCALED(Y6, 768)
	SCALED(Y7, 896)
	SCALED(Y8, 1024)
	SCALED(Y9, 1152)
	SCALED(Y10, 1280)
	SCALED(Y11, 1408)
	SCALED(Y12, 1536)
	SCALED(Y13, 1664)
	SCALED(Y14, 1792)
	SCALED(Y15, 1920)
	ADDQ $2048, DI
	ADDQ $16, DX
	ADDQ $128, R11
	DECQ CX
	JNZ block
	VZEROUPPER
	RET
