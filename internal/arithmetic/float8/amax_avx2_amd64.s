//go:build amd64 && !purego

#include "textflag.h"

// The greatest magnitude of a slice. It is found with comparisons of whole numbers, because the
// bit patterns of magnitudes have the order of the magnitudes.

// func amax256(src *float32, n int) uint32
TEXT ·amax256(SB), NOSPLIT, $0-20
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
