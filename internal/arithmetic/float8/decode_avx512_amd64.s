//go:build amd64 && !purego

#include "textflag.h"

// Decoding, 32 elements at a time. A code of E5M2 is the upper byte of a float16. A code of E4M3,
// except for NaN, becomes a float16 of 1/256 of its value if its magnitude is shifted left by
// seven bits. The caller multiplies the scale by 256.
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

// func decodeMX512(dst *float32, src, scales *byte, blocks int, add uint32, e4m3 bool) int
//
// It decodes blocks of 32 codes, each with a power of two as its scale. add is the exponent of a
// power of two by which scales are multiplied. It stops at the first scale above 2^112, because
// the greatest value of E5M2 times a greater scale overflows, and returns the number of blocks
// that it has decoded.
TEXT ·decodeMX512(SB), NOSPLIT, $0-48
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ scales+16(FP), R11
	MOVQ blocks+24(FP), CX
	MOVL add+32(FP), DX
	MOVBLZX e4m3+36(FP), R8
	MOVL $0x7f7f7f7f, AX
	VPBROADCASTD AX, Y17
	MOVL $0x80008000, AX
	VPBROADCASTD AX, Z18
	MOVL $0x7e007e00, AX
	VPBROADCASTD AX, Z19
	MOVQ CX, R10
	MOVL $0x00400000, R9        // 2^-127

block:
	MOVBLZX (R11), AX
	CMPL AX, $239
	JHI stop
	ADDL DX, AX
	SHLL $23, AX
	CMOVLEQ R9, AX
	VPBROADCASTD AX, Z16
	TESTL R8, R8
	JZ e5m2
	VMOVDQU (SI), Y0
	VPMOVZXBW Y0, Z2
	VPANDD Y17, Y0, Y1
	VPCMPEQB Y17, Y1, K1
	VPMOVZXBW Y1, Z1
	VPSLLW $8, Z2, Z2
	VPSLLW $7, Z1, Z1
	VMOVDQU16 Z19, K1, Z1
	VPTERNLOGD $0xf8, Z18, Z2, Z1
	JMP half

e5m2:
	VPMOVZXBW (SI), Z1
	VPSLLW $8, Z1, Z1

half:
	VEXTRACTI64X4 $1, Z1, Y2
	VCVTPH2PS Y1, Z1
	VCVTPH2PS Y2, Z2
	VMULPS Z16, Z1, Z1
	VMULPS Z16, Z2, Z2
	VMOVUPS Z1, (DI)
	VMOVUPS Z2, 64(DI)
	ADDQ $32, SI
	ADDQ $128, DI
	INCQ R11
	DECQ CX
	JNZ block

stop:
	SUBQ CX, R10
	MOVQ R10, ret+40(FP)
	VZEROUPPER
	RET

// Values of E2M1 by their codes.
DATA values<>+0(SB)/8, $0x3f00000000000000
DATA values<>+8(SB)/8, $0x3fc000003f800000
DATA values<>+16(SB)/8, $0x4040000040000000
DATA values<>+24(SB)/8, $0x40c0000040800000
DATA values<>+32(SB)/8, $0xbf00000080000000
DATA values<>+40(SB)/8, $0xbfc00000bf800000
DATA values<>+48(SB)/8, $0xc0400000c0000000
DATA values<>+56(SB)/8, $0xc0c00000c0800000
GLOBL values<>(SB), RODATA|NOPTR, $64

// func decodeNV512(dst *float32, src *byte, scales *float32, blocks int)
//
// It decodes blocks of 16 codes in eight bytes each, with one of scales for each block.
TEXT ·decodeNV512(SB), NOSPLIT, $0-32
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ scales+16(FP), R11
	MOVQ blocks+24(FP), CX
	VMOVDQU64 values<>(SB), Z16
	MOVL $0x0f0f0f0f, AX
	VPBROADCASTD AX, X17

block:
	VMOVQ (SI), X0
	VPSRLW $4, X0, X1
	VPUNPCKLBW X1, X0, X0
	VPANDD X17, X0, X0
	VPMOVZXBD X0, Z0
	VPERMPS Z16, Z0, Z0
	VBROADCASTSS (R11), Z1
	VMULPS Z1, Z0, Z0
	VMOVUPS Z0, (DI)
	ADDQ $8, SI
	ADDQ $4, R11
	ADDQ $64, DI
	DECQ CX
	JNZ block
	VZEROUPPER
	RET
