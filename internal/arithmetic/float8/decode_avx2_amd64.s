//go:build amd64 && !purego

#include "textflag.h"

// Decoding works as with AVX-512 (decode_avx512_amd64.s), but on sixteen elements at a time: each
// half of a register of words becomes eight elements.
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

// func decodeMX256(dst *float32, src, scales *byte, blocks int, add uint32, e4m3 bool) int
//
// It does what decodeMX512 does.
TEXT ·decodeMX256(SB), NOSPLIT, $0-48
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ scales+16(FP), R11
	MOVQ blocks+24(FP), CX
	MOVL add+32(FP), DX
	MOVBLZX e4m3+36(FP), R8
	MOVL $0x7f7f7f7f, AX
	VMOVD AX, X9
	VPBROADCASTD X9, X9
	MOVL $0x7e007e00, AX
	VMOVD AX, X10
	VPBROADCASTD X10, Y10
	MOVL $0x80008000, AX
	VMOVD AX, X11
	VPBROADCASTD X11, Y11
	MOVQ CX, R10
	MOVL $0x00400000, R9        // 2^-127

block:
	MOVBLZX (R11), AX
	CMPL AX, $239
	JHI stop
	ADDL DX, AX
	SHLL $23, AX
	CMOVLEQ R9, AX
	VMOVD AX, X8
	VPBROADCASTD X8, Y8
	MOVL $2, BX

sixteen:
	TESTL R8, R8
	JZ e5m2
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
	JMP half

e5m2:
	VPMOVZXBW (SI), Y1
	VPSLLW $8, Y1, Y1

half:
	VEXTRACTI128 $1, Y1, X2
	VCVTPH2PS X1, Y1
	VCVTPH2PS X2, Y2
	VMULPS Y8, Y1, Y1
	VMULPS Y8, Y2, Y2
	VMOVUPS Y1, (DI)
	VMOVUPS Y2, 32(DI)
	ADDQ $16, SI
	ADDQ $64, DI
	DECL BX
	JNZ sixteen
	INCQ R11
	DECQ CX
	JNZ block

stop:
	SUBQ CX, R10
	MOVQ R10, ret+40(FP)
	VZEROUPPER
	RET

// Magnitudes of E2M1 by their codes.
DATA values<>+0(SB)/8, $0x3f00000000000000
DATA values<>+8(SB)/8, $0x3fc000003f800000
DATA values<>+16(SB)/8, $0x4040000040000000
DATA values<>+24(SB)/8, $0x40c0000040800000
GLOBL values<>(SB), RODATA|NOPTR, $32

// EIGHT decodes the codes in the low eight bytes of x.
#define EIGHT(x, y, at) \
	VPMOVZXBD x, y              \
	VPERMPS Y8, y, Y3           \
	VPSLLD $28, y, y            \
	VPAND Y9, y, y              \ // sign
	VPOR y, Y3, y               \
	VMULPS Y2, y, y             \
	VMOVUPS y, at(DI)

// func decodeNV256(dst *float32, src *byte, scales *float32, blocks int)
//
// It decodes blocks of 16 codes in eight bytes each, with one of scales for each block.
TEXT ·decodeNV256(SB), NOSPLIT, $0-32
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ scales+16(FP), R11
	MOVQ blocks+24(FP), CX
	VMOVDQU values<>(SB), Y8
	VPCMPEQD Y9, Y9, Y9
	VPSLLD $31, Y9, Y9
	MOVL $0x0f0f0f0f, AX
	VMOVD AX, X10
	VPBROADCASTD X10, X10

block:
	VMOVQ (SI), X0
	VPSRLW $4, X0, X1
	VPUNPCKLBW X1, X0, X0
	VPAND X10, X0, X0
	VPSRLDQ $8, X0, X1
	VBROADCASTSS (R11), Y2
	EIGHT(X0, Y0, 0)
	EIGHT(X1, Y1, 32)
	ADDQ $8, SI
	ADDQ $4, R11
	ADDQ $64, DI
	DECQ CX
	JNZ block
	VZEROUPPER
	RET
