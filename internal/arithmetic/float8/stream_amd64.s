//go:build amd64 && !purego

#include "textflag.h"

// func streamRows256(dst *byte, stride int, src *byte, srcStride, rows, lines int)
//
// It copies rows of whole lines of 64 bytes without writing them to the caches. dst and stride are
// multiples of 64. Other goroutines may read the copy only after a call of fence.
TEXT ·streamRows256(SB), NOSPLIT, $0-48
	MOVQ dst+0(FP), DI
	MOVQ stride+8(FP), R9
	MOVQ src+16(FP), SI
	MOVQ srcStride+24(FP), R10
	MOVQ rows+32(FP), CX
	MOVQ lines+40(FP), DX
	SHLQ $6, DX

row:
	XORL AX, AX

line:
	VMOVDQU (SI)(AX*1), Y0
	VMOVDQU 32(SI)(AX*1), Y1
	VMOVNTDQ Y0, (DI)(AX*1)
	VMOVNTDQ Y1, 32(DI)(AX*1)
	ADDQ $64, AX
	CMPQ AX, DX
	JLT line
	ADDQ R10, SI
	ADDQ R9, DI
	DECQ CX
	JNZ row
	VZEROUPPER
	RET

// func fence()
TEXT ·fence(SB), NOSPLIT, $0-0
	SFENCE
	RET
