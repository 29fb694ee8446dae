//go:build amd64 && !purego

#include "textflag.h"

// Decoding as for AVX-512, sixteen elements at a time: words in the registers of AVX2 are
// decoded in halves.
//
// Y8 scale, X9 0x7f of each byte, Y10 NaN of a float16, Y11 0x8000 of each word.

// func decode256(dst *float32, src *byte, n int, scale float32, e4m3 bool)
//
// n is a positive multiple of 16.
TEXT ·decode256(SB), NOSPLIT, $0-29
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX
	VBROADCASTSS scale+24(FP), Y8
	MOVBLZX e4m3+28(FP), AX
	TESTL AX, AX
	JZ e5m2
	MOVL $0x7f7f7f7f, AX
	VMOVD AX, X9
	VPBROADCASTD X9, X9
	MOVL $0x7e007e00, AX
	VMOVD AX, X10
	VPBROADCASTD X10, Y10
	MOVL $0x80008000, AX
	VMOVD AX, X11
	VPBROADCASTD X11, Y11

e4m3:
	VMOVDQU (SI), X0
	VPAND X9, X0, X1
	VPCMPEQB X9, X1, X2
	VPMOVSXBW X2, Y2
	VPMOVZXBW X0, Y0
	VPMOVZXBW X1, Y1
	VPSLLW $8, Y0, Y0
	VPSLLW $7, Y1, Y1
	VPAND Y11, Y0, Y0
	VPBLENDVB Y2, Y10, Y1, Y1
	VPOR Y0, Y1, Y1
	VEXTRACTI128 $1, Y1, X2
	VCVTPH2PS X1, Y1
	VCVTPH2PS X2, Y2
	VMULPS Y8, Y1, Y1
	VMULPS Y8, Y2, Y2
	VMOVUPS Y1, (DI)
	VMOVUPS Y2, 32(DI)
	ADDQ $16, SI
	ADDQ $64, DI
	SUBQ $16, CX
	JNZ e4m3
	VZEROUPPER
	RET

e5m2:
	VPMOVZXBW (SI), Y1
	VPSLLW $8, Y1, Y1
	VEXTRACTI128 $1, Y1, X2
	VCVTPH2PS X1, Y1
	VCVTPH2PS X2, Y2
	VMULPS Y8, Y1, Y1
	VMULPS Y8, Y2, Y2
	VMOVUPS Y1, (DI)
	VMOVUPS Y2, 32(DI)
	ADDQ $16, SI
	ADDQ $64, DI
	SUBQ $16, CX
	JNZ e5m2
	VZEROUPPER
	RET
