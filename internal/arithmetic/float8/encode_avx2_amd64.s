//go:build amd64 && !purego

#include "textflag.h"

// Encoding, eight elements at a time; four such groups fill a store of 32 codes. Let a be the
// magnitude times the scale, which encodeArgs holds times a power of two, and let m be the
// greatest power of two that is not above a, but at least the least normal number:
//
//	t = m·2^shift + a
//
// The addition rounds a to a multiple of the format's unit in the last place at a. The lowest bits
// of t are this multiple, and its exponent differs from that of m by shift. Therefore the lowest
// byte of t>>shift + t is the code, even of a subnormal number.
//
// The layout of encodeArgs (encode_asm.go), by offset: 0 scale, 4 most, 8 normal, 12 ulp,
// 16 shift, 24 amax, 28 zeros. Registers that last:
//
//	Y8 scale   Y9 0x7fffffff   Y10 most   Y11 normal   Y12 ulp
//	Y13 0x7f800000   X14 shift   Y15 amax
//
// DI is dst, SI src, CX the number of elements left. PACK reads the masks 0x7f at 0(SP) and 0x80
// at 32(SP), each repeated in eight double words.

#define CONSTANTS(r) \
	MOVL $0x7f, AX              \
	VMOVD AX, X0                \
	VPBROADCASTD X0, Y0         \
	VMOVDQU Y0, 0(SP)           \
	MOVL $0x80, AX              \
	VMOVD AX, X0                \
	VPBROADCASTD X0, Y0         \
	VMOVDQU Y0, 32(SP)          \
	VBROADCASTSS 0(r), Y8       \
	VPCMPEQD Y9, Y9, Y9         \
	VPSRLD $1, Y9, Y9           \
	VBROADCASTSS 4(r), Y10      \
	VBROADCASTSS 8(r), Y11      \
	VBROADCASTSS 12(r), Y12     \
	MOVL $0x7f800000, AX        \
	VMOVD AX, X13               \
	VPBROADCASTD X13, Y13       \
	VMOVQ 16(r), X14            \
	VPXOR Y15, Y15, Y15

// AHEAD2 prefetches 2 lines of 64 bytes at a distance of 4096 bytes: the hardware does
// not prefetch beyond the end of a page.
#define AHEAD2 PREFETCHT0 4096(SI); PREFETCHT0 4160(SI)

// CODES stores the codes of eight elements in double words of x. It overwrites Y4 and Y5.
#define CODES(at, x) \
	VMOVUPS at(SI), Y5          \
	VPAND Y9, Y5, x             \
	VPMAXUD x, Y15, Y15         \
	VMULPS Y8, x, x             \
	VMINPS Y10, x, x            \
	VMAXPS Y11, x, Y4           \
	VPAND Y13, Y4, Y4           \
	VFMADD213PS x, Y12, Y4      \
	VPSRLD X14, Y4, x           \
	VPADDD x, Y4, x             \
	VPAND 0(SP), x, x           \
	VPSRLD $24, Y5, Y5          \
	VPAND 32(SP), Y5, Y5        \
	VPOR Y5, x, x

// PACK stores the codes of Y0 to Y3, and adds the number that stand for zero to BX.
#define PACK \
	VPACKUSDW Y1, Y0, Y0        \ // 0 8 | 4 12, four words each
	VPACKUSDW Y3, Y2, Y2        \
	VPACKUSWB Y2, Y0, Y0        \ // 0 8 16 24 | 4 12 20 28, four bytes each
	VMOVDQU order<>(SB), Y4     \
	VPERMD Y0, Y4, Y0           \
	VMOVDQU Y0, (DI)            \
	VPADDB Y0, Y0, Y0           \
	VPXOR Y4, Y4, Y4            \
	VPCMPEQB Y4, Y0, Y0         \
	VPMOVMSKB Y0, AX            \
	POPCNTL AX, AX              \
	ADDL AX, BX

DATA order<>+0(SB)/8, $0x0000000400000000
DATA order<>+8(SB)/8, $0x0000000500000001
DATA order<>+16(SB)/8, $0x0000000600000002
DATA order<>+24(SB)/8, $0x0000000700000003
GLOBL order<>(SB), RODATA|NOPTR, $32

// REDUCE stores the greatest double word of Yx in AX.
#define REDUCE(yx, xx, xt) \
	VEXTRACTI128 $1, yx, xt     \
	VPMAXUD xx, xt, xx          \
	VPSHUFD $0x4e, xx, xt       \
	VPMAXUD xx, xt, xx          \
	VPSHUFD $0xb1, xx, xt       \
	VPMAXUD xx, xt, xx          \
	VMOVD xx, AX

// func encode256(dst *byte, src *float32, n int, r *encodeArgs)
TEXT ·encode256(SB), NOSPLIT, $64-32
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX
	MOVQ r+24(FP), R8
	CONSTANTS(R8)
	XORL BX, BX

encode:
	AHEAD2
	CODES(0, Y0)
	CODES(32, Y1)
	CODES(64, Y2)
	CODES(96, Y3)
	PACK
	ADDQ $128, SI
	ADDQ $32, DI
	SUBQ $32, CX
	JNZ encode
	REDUCE(Y15, X15, X0)
	MOVL AX, 24(R8)
	MOVL BX, 28(R8)
	VZEROUPPER
	RET

// func zeros256(src *float32, n int) int
TEXT ·zeros256(SB), NOSPLIT, $0-24
	MOVQ src+0(FP), SI
	MOVQ n+8(FP), CX
	VPXOR Y0, Y0, Y0
	VPXOR Y1, Y1, Y1
	XORL BX, BX
zeros:
	VMOVDQU (SI), Y2
	VMOVDQU 32(SI), Y3
	VPADDD Y2, Y2, Y2
	VPADDD Y3, Y3, Y3
	VPCMPEQD Y0, Y2, Y2
	VPCMPEQD Y0, Y3, Y3
	VPSUBD Y2, Y1, Y1
	VPSUBD Y3, Y1, Y1
	ADDQ $64, SI
	SUBQ $16, CX
	JNZ zeros
	VEXTRACTI128 $1, Y1, X0
	VPADDD X1, X0, X0
	VPHADDD X0, X0, X0
	VPHADDD X0, X0, X0
	VMOVD X0, AX
	MOVQ AX, ret+16(FP)
	VZEROUPPER
	RET
