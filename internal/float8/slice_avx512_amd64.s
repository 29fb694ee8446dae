//go:build amd64 && !purego

#include "textflag.h"

// Sixteen elements at a time, a register each for what lasts:
//
//	Z16 scale     Z17 0x7fffffff  Z18 bias    Z19 normal
//	Z20 magic     Z21 most        Z22 above   Z23 1
//	Z24 amax      Z25 saturated   Z26 underflowed
//	X14 shift      Z15 0x80
//
// DI is dst, SI src, CX the elements left.

// func encodeAVX512(dst *byte, src *float32, n int, scale float32, r *rounding, c *counts)
TEXT ·encodeAVX512(SB), NOSPLIT, $0-48
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX
	MOVQ r+32(FP), R8
	MOVQ c+40(FP), R9
	VBROADCASTSS scale+24(FP), Z16
	MOVL $0x7fffffff, AX
	VPBROADCASTD AX, Z17
	VMOVQ 0(R8), X14
	MOVL $0x80, AX
	VPBROADCASTD AX, Z15
	VPBROADCASTD 8(R8), Z18
	VPBROADCASTD 12(R8), Z19
	VPBROADCASTD 16(R8), Z20
	VPBROADCASTD 20(R8), Z21
	VPBROADCASTD 24(R8), Z22
	MOVL $1, AX
	VPBROADCASTD AX, Z23
	VPXORD Z24, Z24, Z24
	VPXORD Z25, Z25, Z25
	VPXORD Z26, Z26, Z26

encode:
	VMOVUPS (SI), Z0
	VPANDD Z17, Z0, Z1          // magnitude before the scale
	VPMAXUD Z1, Z24, Z24
	VMULPS Z16, Z0, Z2
	VPANDD Z17, Z2, Z3          // a
	VPSRLD $24, Z2, Z4          // the sign on top of a byte

	VPSRLD X14, Z3, Z5          // (a + bias + (a>>shift & 1)) >> shift
	VPANDD Z23, Z5, Z5
	VPADDD Z18, Z3, Z6
	VPADDD Z5, Z6, Z6
	VPSRLD X14, Z6, Z6

	VPCMPUD $1, Z19, Z3, K1     // below the normal ones: bits(a + magic) - bits(magic)
	VADDPS Z20, Z3, K1, Z6
	VPSUBD Z20, Z6, K1, Z6

	VPCMPUD $6, Z21, Z6, K2     // above the greatest
	VMOVDQA32 Z22, K2, Z6
	VPADDD Z23, Z25, K2, Z25
	VPTESTNMD Z6, Z6, K3        // zero that was none
	VPTESTMD Z1, Z1, K3, K3
	VPADDD Z23, Z26, K3, Z26

	VPTERNLOGD $0xf8, Z15, Z4, Z6 // Z6 | Z4&Z15
	VPMOVDB Z6, (DI)
	ADDQ $64, SI
	ADDQ $16, DI
	SUBQ $16, CX
	JNZ encode

	// The greatest of Z24, the sums of Z25 and Z26.
	VEXTRACTI64X4 $1, Z24, Y0
	VPMAXUD Y24, Y0, Y0
	VEXTRACTI128 $1, Y0, X1
	VPMAXUD X1, X0, X0
	VPSHUFD $0x4e, X0, X1
	VPMAXUD X1, X0, X0
	VPSHUFD $0xb1, X0, X1
	VPMAXUD X1, X0, X0
	VMOVD X0, 0(R9)
	VEXTRACTI64X4 $1, Z25, Y0
	VPADDD Y25, Y0, Y0
	VEXTRACTI64X4 $1, Z26, Y1
	VPADDD Y26, Y1, Y1
	VPHADDD Y1, Y0, Y0
	VEXTRACTI128 $1, Y0, X1
	VPADDD X1, X0, X0
	VPHADDD X0, X0, X0
	VMOVQ X0, 4(R9)
	VZEROUPPER
	RET

// Z16 scale, Z17 256, Z18 the codes 0x7f of NaN as 16 bits, Z19 their float16.
//
// A code of E5M2 is the upper byte of a float16. One of E4M3, seven bits up, is a
// float16 of a 256th of its value, but for NaN.

// func decodeAVX512(dst *float32, src *byte, n int, scale float32, e4m3 bool)
TEXT ·decodeAVX512(SB), NOSPLIT, $0-29
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX
	VBROADCASTSS scale+24(FP), Z16
	MOVBLZX e4m3+28(FP), AX
	TESTL AX, AX
	JZ e5m2
	MOVL $0x43800000, AX
	VPBROADCASTD AX, Z17
	MOVL $0x3f803f80, AX
	VPBROADCASTD AX, Y18
	MOVL $0x7e007e00, AX
	VPBROADCASTD AX, Y19
	MOVL $0x80008000, AX
	VPBROADCASTD AX, Y20

e4m3:
	VPMOVZXBW (SI), Y0
	VPSLLW $8, Y0, Y1
	VPANDD Y20, Y1, Y1          // sign
	VPSLLW $9, Y0, Y0
	VPSRLW $2, Y0, Y0           // (code & 0x7f) << 7
	VPCMPEQW Y18, Y0, K1
	VMOVDQU16 Y19, K1, Y0
	VPORD Y1, Y0, Y0
	VCVTPH2PS Y0, Z0
	VMULPS Z17, Z0, Z0
	VMULPS Z16, Z0, Z0
	VMOVUPS Z0, (DI)
	ADDQ $16, SI
	ADDQ $64, DI
	SUBQ $16, CX
	JNZ e4m3
	VZEROUPPER
	RET

e5m2:
	VPMOVZXBW (SI), Y0
	VPSLLW $8, Y0, Y0
	VCVTPH2PS Y0, Z0
	VMULPS Z16, Z0, Z0
	VMOVUPS Z0, (DI)
	ADDQ $16, SI
	ADDQ $64, DI
	SUBQ $16, CX
	JNZ e5m2
	VZEROUPPER
	RET

// func amaxAVX512(src *float32, n int) uint32
TEXT ·amaxAVX512(SB), NOSPLIT, $0-20
	MOVQ src+0(FP), SI
	MOVQ n+8(FP), CX
	MOVL $0x7fffffff, AX
	VPBROADCASTD AX, Z17
	VPXORD Z0, Z0, Z0
	VPXORD Z1, Z1, Z1
	VPXORD Z2, Z2, Z2
	VPXORD Z3, Z3, Z3
	SUBQ $64, CX
	JLT few

many:
	VPANDD (SI), Z17, Z4
	VPMAXUD Z4, Z0, Z0
	VPANDD 64(SI), Z17, Z5
	VPMAXUD Z5, Z1, Z1
	VPANDD 128(SI), Z17, Z6
	VPMAXUD Z6, Z2, Z2
	VPANDD 192(SI), Z17, Z7
	VPMAXUD Z7, Z3, Z3
	ADDQ $256, SI
	SUBQ $64, CX
	JGE many

few:
	ADDQ $64, CX
	JZ done

one:
	VPANDD (SI), Z17, Z4
	VPMAXUD Z4, Z0, Z0
	ADDQ $64, SI
	SUBQ $16, CX
	JNZ one

done:
	VPMAXUD Z1, Z0, Z0
	VPMAXUD Z3, Z2, Z2
	VPMAXUD Z2, Z0, Z0
	VEXTRACTI64X4 $1, Z0, Y1
	VPMAXUD Y1, Y0, Y0
	VEXTRACTI128 $1, Y0, X1
	VPMAXUD X1, X0, X0
	VPSHUFD $0x4e, X0, X1
	VPMAXUD X1, X0, X0
	VPSHUFD $0xb1, X0, X1
	VPMAXUD X1, X0, X0
	VMOVD X0, AX
	MOVL AX, ret+16(FP)
	VZEROUPPER
	RET
