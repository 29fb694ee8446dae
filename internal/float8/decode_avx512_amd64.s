//go:build amd64 && !purego

#include "textflag.h"

// Decoding, 32 elements at a time. A code of E5M2 is the upper byte of a float16. One of
// E4M3, seven bits up, is a float16 of a 256th of its value, but for NaN; the scale has the
// 256.
//
// Z16 scale, Y17 and Z18 0x7f of each byte and 0x8000 of each word, Z19 NaN of a float16.

// func decode512(dst *float32, src *byte, n int, scale float32, e4m3 bool)
//
// n is a positive multiple of 32.
TEXT ·decode512(SB), NOSPLIT, $0-29
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX
	VBROADCASTSS scale+24(FP), Z16
	MOVBLZX e4m3+28(FP), AX
	TESTL AX, AX
	JZ e5m2
	MOVL $0x7f7f7f7f, AX
	VPBROADCASTD AX, Y17
	MOVL $0x80008000, AX
	VPBROADCASTD AX, Z18
	MOVL $0x7e007e00, AX
	VPBROADCASTD AX, Z19

e4m3:
	VMOVDQU (SI), Y0
	VPMOVZXBW Y0, Z2
	VPANDD Y17, Y0, Y1
	VPCMPEQB Y17, Y1, K1
	VPMOVZXBW Y1, Z1
	VPSLLW $8, Z2, Z2
	VPSLLW $7, Z1, Z1
	VMOVDQU16 Z19, K1, Z1
	VPTERNLOGD $0xf8, Z18, Z2, Z1 // Z1 | Z2&0x8000
	VEXTRACTI64X4 $1, Z1, Y2
	VCVTPH2PS Y1, Z1
	VCVTPH2PS Y2, Z2
	VMULPS Z16, Z1, Z1
	VMULPS Z16, Z2, Z2
	VMOVUPS Z1, (DI)
	VMOVUPS Z2, 64(DI)
	ADDQ $32, SI
	ADDQ $128, DI
	SUBQ $32, CX
	JNZ e4m3
	VZEROUPPER
	RET

e5m2:
	VPMOVZXBW (SI), Z1
	VPSLLW $8, Z1, Z1
	VEXTRACTI64X4 $1, Z1, Y2
	VCVTPH2PS Y1, Z1
	VCVTPH2PS Y2, Z2
	VMULPS Z16, Z1, Z1
	VMULPS Z16, Z2, Z2
	VMOVUPS Z1, (DI)
	VMOVUPS Z2, 64(DI)
	ADDQ $32, SI
	ADDQ $128, DI
	SUBQ $32, CX
	JNZ e5m2
	VZEROUPPER
	RET
