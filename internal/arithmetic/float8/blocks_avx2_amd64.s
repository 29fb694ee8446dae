//go:build amd64 && !purego

#include "textflag.h"

// The steps before and after the encoding of blocks whose scales are in a list: these functions
// compute greatest magnitudes and the scales of NV16, and pack codes of four bits in pairs.

// AHEAD2 and AHEAD4 prefetch 2 and 4 lines of 64 bytes at a distance of 4096 bytes: the hardware does
// not prefetch beyond the end of a page.
#define AHEAD2 PREFETCHT0 4096(SI); PREFETCHT0 4160(SI)
#define AHEAD4 AHEAD2; PREFETCHT0 4224(SI); PREFETCHT0 4288(SI)

// func amaxBlocks256(amax *uint32, src *float32, n int) uint32
//
// It stores the greatest magnitude of each 16 elements in amax, and returns that of all n
// elements. n is a positive multiple of 64.
//
// Y9 0x7fffffff   X15 the greatest magnitude so far
TEXT ·amaxBlocks256(SB), NOSPLIT, $0-28
	MOVQ amax+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX
	VPCMPEQD Y9, Y9, Y9
	VPSRLD $1, Y9, Y9
	VPXOR X15, X15, X15

four:
	AHEAD4
	VPAND (SI), Y9, Y0
	VPAND 32(SI), Y9, Y1
	VPAND 64(SI), Y9, Y2
	VPAND 96(SI), Y9, Y3
	VPAND 128(SI), Y9, Y4
	VPAND 160(SI), Y9, Y5
	VPAND 192(SI), Y9, Y6
	VPAND 224(SI), Y9, Y7
	VPMAXUD Y1, Y0, Y0
	VPMAXUD Y3, Y2, Y2
	VPMAXUD Y5, Y4, Y4
	VPMAXUD Y7, Y6, Y6
	VPUNPCKLDQ Y2, Y0, Y1
	VPUNPCKHDQ Y2, Y0, Y3
	VPMAXUD Y1, Y3, Y0          // blocks 0 1 0 1 in each lane
	VPUNPCKLDQ Y6, Y4, Y5
	VPUNPCKHDQ Y6, Y4, Y7
	VPMAXUD Y5, Y7, Y4          // 2 3 2 3
	VPUNPCKLQDQ Y4, Y0, Y1
	VPUNPCKHQDQ Y4, Y0, Y3
	VPMAXUD Y1, Y3, Y0          // 0 1 2 3
	VEXTRACTI128 $1, Y0, X1
	VPMAXUD X1, X0, X0
	VMOVDQU X0, (DI)
	VPMAXUD X0, X15, X15
	ADDQ $16, DI
	ADDQ $256, SI
	SUBQ $64, CX
	JNZ four

	VPSHUFD $0x4e, X15, X1
	VPMAXUD X1, X15, X0
	VPSHUFD $0xb1, X0, X1
	VPMAXUD X1, X0, X0
	VMOVD X0, AX
	MOVL AX, ret+24(FP)
	VZEROUPPER
	RET

// func scalesNV256(codes *byte, scales *float32, amax *uint32, n int, r *encodeArgsNV) bool
//
// For n blocks of NV16, whose greatest magnitudes are finite and in amax, it stores the codes of
// their scales in codes, and the factors by which their elements are multiplied in scales. It
// reports whether a block saturates. n is a positive multiple of 8. The layout of encodeArgsNV,
// by offset: 0 sixth, which is tensor/6, 4 inverse, which is 1/tensor, 8 most and 12 normal, the
// greatest and the least normal number of E4M3, both times 2^-13, 16 ulp, which is 2^20, 20 down,
// which is 2^-13, 24 up, which is 2^13, 28 greatest, the greatest float32, 32 adjust, the unit of
// the factors (2^-21 for E2M1, or 1), 36 cut, which is 7·adjust: from it on E2M1 saturates. Scales
// are encoded as elements are (encode_avx2_amd64.s).
//
//	Y8 tensor/6     Y9 448·2^-13   Y10 2^-6·2^-13   Y11 2^20   Y12 1/tensor
//	Y13 0x7f800000  Y14 1          Y15 mask of the blocks that saturate
TEXT ·scalesNV256(SB), NOSPLIT, $0-41
	MOVQ codes+0(FP), DX
	MOVQ scales+8(FP), DI
	MOVQ amax+16(FP), SI
	MOVQ n+24(FP), CX
	MOVQ r+32(FP), R8
	VBROADCASTSS 0(R8), Y8
	VBROADCASTSS 4(R8), Y12
	VBROADCASTSS 8(R8), Y9
	VBROADCASTSS 12(R8), Y10
	VBROADCASTSS 16(R8), Y11
	MOVL $0x7f800000, AX
	VMOVD AX, X13
	VPBROADCASTD X13, Y13
	MOVL $0x3f800000, AX
	VMOVD AX, X14
	VPBROADCASTD X14, Y14
	VPXOR Y15, Y15, Y15

eight:
	VMOVUPS (SI), Y0
	VMULPS Y8, Y0, Y1           // what E4M3 rounds
	VBROADCASTSS 20(R8), Y6
	VMULPS Y6, Y1, Y1           // times 2^-13
	VMINPS Y9, Y1, Y1
	VMAXPS Y10, Y1, Y2
	VPAND Y13, Y2, Y2
	VMULPS Y11, Y2, Y3          // m·2^20
	VADDPS Y3, Y1, Y4           // t
	VPSRLD $20, Y4, Y5
	VPADDD Y5, Y4, Y5
	VPSLLD $24, Y5, Y5          // the code is the lowest byte
	VPSRLD $24, Y5, Y5
	VPACKUSDW Y5, Y5, Y5
	VPACKUSWB Y5, Y5, Y5
	VEXTRACTI128 $1, Y5, X6
	VPUNPCKLDQ X6, X5, X5
	VMOVQ X5, (DX)
	VSUBPS Y3, Y4, Y4
	VBROADCASTSS 24(R8), Y6
	VMULPS Y6, Y4, Y4           // the scale, times 2^13
	VMULPS Y12, Y4, Y4
	VDIVPS Y4, Y14, Y4
	VBROADCASTSS 28(R8), Y6
	VMINPS Y6, Y4, Y4           // infinity is the greatest float32
	VBROADCASTSS 32(R8), Y6
	VMULPS Y6, Y4, Y4
	VMOVUPS Y4, (DI)
	VMULPS Y0, Y4, Y0
	VBROADCASTSS 36(R8), Y6
	VCMPPS $13, Y6, Y0, Y0      // not below
	VPOR Y0, Y15, Y15
	ADDQ $32, SI
	ADDQ $32, DI
	ADDQ $8, DX
	SUBQ $8, CX
	JNZ eight

	VMOVMSKPS Y15, AX
	TESTL AX, AX
	SETNE ret+40(FP)
	VZEROUPPER
	RET

DATA nibble<>+0(SB)/8, $0x0f0f0f0f0f0f0f0f
DATA nibble<>+8(SB)/8, $0x0f0f0f0f0f0f0f0f
DATA nibble<>+16(SB)/8, $0x0f0f0f0f0f0f0f0f
DATA nibble<>+24(SB)/8, $0x0f0f0f0f0f0f0f0f
GLOBL nibble<>(SB), RODATA|NOPTR, $32

// PAIRS packs each pair of codes in y into the low byte of a word. It overwrites Y2.
#define PAIRS(y) \
	VPSRLW $4, y, Y2            \ // signs from bit 7 to bit 3
	VPOR Y2, y, y               \
	VPAND nibble<>(SB), y, y    \
	VPMADDUBSW Y8, y, y           // the first and 16 times the second

// func nibbles256(dst, src *byte, n int)
//
// It packs n codes of E2M1, each in a byte with its sign in bit 7, into codes of four bits. n is
// a positive multiple of 64.
TEXT ·nibbles256(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX
	MOVL $0x10011001, AX
	VMOVD AX, X8
	VPBROADCASTD X8, Y8

codes:
	VMOVDQU (SI), Y0
	VMOVDQU 32(SI), Y1
	PAIRS(Y0)
	PAIRS(Y1)
	VPACKUSWB Y1, Y0, Y0
	VPERMQ $0xd8, Y0, Y0
	VMOVDQU Y0, (DI)
	ADDQ $64, SI
	ADDQ $32, DI
	SUBQ $64, CX
	JNZ codes
	VZEROUPPER
	RET
