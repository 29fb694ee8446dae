//go:build amd64 && !purego

#include "textflag.h"

// Eight elements at a time, two of these in turn for a store of sixteen codes. Of the
// sixteen registers these last:
//
//	Y6 above   Y7 1      Y8 scale   Y9 0x7fffffff  Y10 bias  Y11 normal
//	Y12 magic  Y13 most  X14 shift  Y15 amax
//
// The counts lie on the stack: at 0 those that are not above, less, at 32 those that
// underflowed.
//
// DI is dst, SI src, CX the elements left. Magnitudes are below 2^31, so that signed
// comparisons do.

// EIGHT leaves in Y0 the codes of eight elements, a byte in each double word.
#define EIGHT(at) \
	VMOVUPS at(SI), Y0          \
	VPAND Y9, Y0, Y1            \ // magnitude before the scale
	VPMAXUD Y1, Y15, Y15        \
	VMULPS Y8, Y0, Y2           \
	VPAND Y9, Y2, Y3            \ // a
	VPSRLD $31, Y2, Y2          \
	VPSLLD $7, Y2, Y2           \ // sign
	VPSRLD X14, Y3, Y4          \ // (a + bias + (a>>shift & 1)) >> shift
	VPAND Y7, Y4, Y4            \
	VPADDD Y10, Y3, Y0          \
	VPADDD Y4, Y0, Y0           \
	VPSRLD X14, Y0, Y0          \
	VPCMPGTD Y3, Y11, Y4        \ // below the normal ones: bits(a + magic) - bits(magic)
	VADDPS Y12, Y3, Y3          \
	VPSUBD Y12, Y3, Y3          \
	VPBLENDVB Y4, Y3, Y0, Y0    \
	VPMINUD Y13, Y0, Y4         \ // above the greatest
	VPCMPEQD Y4, Y0, Y4         \
	VPBLENDVB Y4, Y0, Y6, Y0    \
	VPADDD 0(SP), Y4, Y4        \ // one less for each that is not above
	VMOVDQU Y4, 0(SP)           \
	VPXOR Y3, Y3, Y3            \ // zero that was none
	VPCMPEQD Y3, Y1, Y4         \
	VPCMPEQD Y3, Y0, Y3         \
	VPANDN Y3, Y4, Y3           \
	VMOVDQU 32(SP), Y4          \
	VPSUBD Y3, Y4, Y4           \
	VMOVDQU Y4, 32(SP)          \
	VPOR Y2, Y0, Y0

// func encodeAVX2(dst *byte, src *float32, n int, scale float32, r *rounding, c *counts)
TEXT ·encodeAVX2(SB), NOSPLIT, $64-48
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX
	MOVQ CX, DX
	MOVQ r+32(FP), R8
	MOVQ c+40(FP), R9
	VBROADCASTSS scale+24(FP), Y8
	VPCMPEQD Y9, Y9, Y9
	VPSRLD $31, Y9, Y7
	VPSRLD $1, Y9, Y9
	VMOVQ 0(R8), X14
	VPBROADCASTD 8(R8), Y10
	VPBROADCASTD 12(R8), Y11
	VPBROADCASTD 16(R8), Y12
	VPBROADCASTD 20(R8), Y13
	VPBROADCASTD 24(R8), Y6
	VPXOR Y15, Y15, Y15
	VMOVDQU Y15, 0(SP)
	VMOVDQU Y15, 32(SP)

encode:
	EIGHT(0)
	VMOVDQA Y0, Y5
	EIGHT(32)
	VPACKUSDW Y0, Y5, Y0        // 0-3 8-11 | 4-7 12-15, words
	VPERMQ $0xd8, Y0, Y0        // 0-3 4-7 | 8-11 12-15
	VEXTRACTI128 $1, Y0, X1
	VPACKUSWB X1, X0, X0
	VMOVDQU X0, (DI)
	ADDQ $64, SI
	ADDQ $16, DI
	SUBQ $16, CX
	JNZ encode

	VEXTRACTI128 $1, Y15, X0
	VPMAXUD X15, X0, X0
	VPSHUFD $0x4e, X0, X1
	VPMAXUD X1, X0, X0
	VPSHUFD $0xb1, X0, X1
	VPMAXUD X1, X0, X0
	VMOVD X0, 0(R9)
	VMOVDQU 0(SP), Y0
	VMOVDQU 32(SP), Y1
	VPHADDD Y1, Y0, Y0
	VEXTRACTI128 $1, Y0, X1
	VPADDD X1, X0, X0
	VPHADDD X0, X0, X0
	VMOVD X0, AX
	ADDL DX, AX                 // all, less those that are not above
	MOVL AX, 4(R9)
	VPEXTRD $1, X0, 8(R9)
	VZEROUPPER
	RET

// Y8 scale, Y9 256, X10 the codes 0x7f of NaN as 16 bits, X11 their float16, X12 the
// sign of a float16. See the assembly for AVX-512.

// func decodeAVX2(dst *float32, src *byte, n int, scale float32, e4m3 bool)
TEXT ·decodeAVX2(SB), NOSPLIT, $0-29
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX
	VBROADCASTSS scale+24(FP), Y8
	MOVBLZX e4m3+28(FP), AX
	TESTL AX, AX
	JZ e5m2
	MOVL $0x43800000, AX
	VMOVD AX, X9
	VPBROADCASTD X9, Y9
	MOVL $0x3f803f80, AX
	VMOVD AX, X10
	VPBROADCASTD X10, X10
	MOVL $0x7e007e00, AX
	VMOVD AX, X11
	VPBROADCASTD X11, X11
	MOVL $0x80008000, AX
	VMOVD AX, X12
	VPBROADCASTD X12, X12

e4m3:
	VPMOVZXBW (SI), X0
	VPSLLW $8, X0, X1
	VPAND X12, X1, X1
	VPSLLW $9, X0, X0
	VPSRLW $2, X0, X0
	VPCMPEQW X10, X0, X2
	VPBLENDVB X2, X11, X0, X0
	VPOR X1, X0, X0
	VCVTPH2PS X0, Y0
	VMULPS Y9, Y0, Y0
	VMULPS Y8, Y0, Y0
	VMOVUPS Y0, (DI)
	ADDQ $8, SI
	ADDQ $32, DI
	SUBQ $8, CX
	JNZ e4m3
	VZEROUPPER
	RET

e5m2:
	VPMOVZXBW (SI), X0
	VPSLLW $8, X0, X0
	VCVTPH2PS X0, Y0
	VMULPS Y8, Y0, Y0
	VMOVUPS Y0, (DI)
	ADDQ $8, SI
	ADDQ $32, DI
	SUBQ $8, CX
	JNZ e5m2
	VZEROUPPER
	RET

// func amaxAVX2(src *float32, n int) uint32
TEXT ·amaxAVX2(SB), NOSPLIT, $0-20
	MOVQ src+0(FP), SI
	MOVQ n+8(FP), CX
	VPCMPEQD Y9, Y9, Y9
	VPSRLD $1, Y9, Y9
	VPXOR Y0, Y0, Y0
	VPXOR Y1, Y1, Y1

sixteen:
	VPAND (SI), Y9, Y2
	VPMAXUD Y2, Y0, Y0
	VPAND 32(SI), Y9, Y3
	VPMAXUD Y3, Y1, Y1
	ADDQ $64, SI
	SUBQ $16, CX
	JNZ sixteen
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
