//go:build amd64 && !purego

#include "textflag.h"

// The greatest magnitude: bit patterns of magnitudes compare as they do.

// func amax512(src *float32, n int) uint32
TEXT ·amax512(SB), NOSPLIT, $0-20
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
