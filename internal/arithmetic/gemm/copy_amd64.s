//go:build !purego

#include "textflag.h"

// The copies that packing consists of, in AVX2. They read and write no bytes beyond those that
// their arguments describe.

// FOUR writes 4 columns of 8 rows of src, from byte off on, as 4 rows of dst.
//
// Y0 gets rows 0 and 4, Y1 rows 1 and 5, Y2 rows 2 and 6, Y3 rows 3 and 7: four
// columns of each in its two halves. Interleaving words of Y0 and Y1, of Y2 and
// Y3, and then pairs of words, leaves one column of all 8 rows in each.
//
// Registers: SI and BX are rows 0 and 5 of src, R9 and R10 are srcRow times 1 and 3; DI is dst,
// R8 and R11 are dstRow times 1 and 3.
#define FOUR(off) \
	VMOVUPS off(SI), X0; \
	VMOVUPS off(SI)(R9*1), X1; \
	VMOVUPS off(SI)(R9*2), X2; \
	VMOVUPS off(SI)(R10*1), X3; \
	VINSERTF128 $1, off(SI)(R9*4), Y0, Y0; \
	VINSERTF128 $1, off(BX), Y1, Y1; \
	VINSERTF128 $1, off(BX)(R9*1), Y2, Y2; \
	VINSERTF128 $1, off(BX)(R9*2), Y3, Y3; \
	VUNPCKLPS Y1, Y0, Y4; \
	VUNPCKHPS Y1, Y0, Y5; \
	VUNPCKLPS Y3, Y2, Y6; \
	VUNPCKHPS Y3, Y2, Y7; \
	VUNPCKLPD Y6, Y4, Y0; \
	VUNPCKHPD Y6, Y4, Y1; \
	VUNPCKLPD Y7, Y5, Y2; \
	VUNPCKHPD Y7, Y5, Y3; \
	VMOVUPS Y0, (DI); \
	VMOVUPS Y1, (DI)(R8*1); \
	VMOVUPS Y2, (DI)(R8*2); \
	VMOVUPS Y3, (DI)(R11*1); \
	LEAQ (DI)(R8*4), DI

// COPY is the body of the copies of rows: LOAD and STORE move one row.
#define COPY(LOAD, STORE) \
	MOVQ dst+0(FP), DI; \
	MOVQ dstRow+8(FP), R8; \
	MOVQ src+16(FP), SI; \
	MOVQ srcRow+24(FP), R9; \
	MOVQ rows+32(FP), CX; \
row: \
	LOAD; \
	STORE; \
	ADDQ R9, SI; \
	ADDQ R8, DI; \
	DECQ CX; \
	JNZ  row; \
	VZEROUPPER; \
	RET

#define LOAD8 VMOVUPS (SI), Y0
#define STORE8 VMOVUPS Y0, (DI)
#define LOAD4 VMOVUPS (SI), X0
#define STORE4 VMOVUPS X0, (DI)

// func transpose8(dst *float32, dstRow int, src *float32, srcRow, blocks int)
//
// It writes 8·blocks columns of 8 rows of src as rows of dst. dstRow and srcRow are the distances
// between rows in bytes.
TEXT ·transpose8(SB), NOSPLIT, $0-40
	MOVQ dst+0(FP), DI
	MOVQ dstRow+8(FP), R8
	MOVQ src+16(FP), SI
	MOVQ srcRow+24(FP), R9
	MOVQ blocks+32(FP), CX
	LEAQ (R9)(R9*2), R10
	LEAQ (R8)(R8*2), R11
	LEAQ (R9)(R9*4), BX
	ADDQ SI, BX

block:
	FOUR(0)
	FOUR(16)
	ADDQ $32, SI
	ADDQ $32, BX
	DECQ CX
	JNZ  block
	VZEROUPPER
	RET

// func copy8(dst *float32, dstRow int, src *float32, srcRow, rows int)
//
// It copies the first 8 columns of rows. dstRow and srcRow are the distances between rows in
// bytes.
TEXT ·copy8(SB), NOSPLIT, $0-40
	COPY(LOAD8, STORE8)

// func copy4(dst *float32, dstRow int, src *float32, srcRow, rows int)
//
// It copies the first 4 columns of rows. dstRow and srcRow are the distances between rows in
// bytes.
TEXT ·copy4(SB), NOSPLIT, $0-40
	COPY(LOAD4, STORE4)

// func spread16(dst *float32, dstPanel int, src *float32, panels, ahead int)
//
// It copies a row to panels of 16 columns, dstPanel bytes apart, and prefetches src at a distance
// of ahead bytes.
TEXT ·spread16(SB), NOSPLIT, $0-40
	MOVQ dst+0(FP), DI
	MOVQ dstPanel+8(FP), R8
	MOVQ src+16(FP), SI
	MOVQ panels+24(FP), CX
	MOVQ ahead+32(FP), R9

panel:
	PREFETCHT0 (SI)(R9*1)
	VMOVUPS (SI), Y0
	VMOVUPS 32(SI), Y1
	VMOVUPS Y0, (DI)
	VMOVUPS Y1, 32(DI)
	ADDQ $64, SI
	ADDQ R8, DI
	DECQ CX
	JNZ  panel
	VZEROUPPER
	RET

// func spread32(dst *float32, dstPanel int, src *float32, panels, ahead int)
//
// It copies a row to panels of 32 columns, dstPanel bytes apart, and prefetches src at a distance
// of ahead bytes.
TEXT ·spread32(SB), NOSPLIT, $0-40
	MOVQ dst+0(FP), DI
	MOVQ dstPanel+8(FP), R8
	MOVQ src+16(FP), SI
	MOVQ panels+24(FP), CX
	MOVQ ahead+32(FP), R9

panel:
	PREFETCHT0 (SI)(R9*1)
	PREFETCHT0 64(SI)(R9*1)
	VMOVUPS (SI), Y0
	VMOVUPS 32(SI), Y1
	VMOVUPS 64(SI), Y2
	VMOVUPS 96(SI), Y3
	VMOVUPS Y0, (DI)
	VMOVUPS Y1, 32(DI)
	VMOVUPS Y2, 64(DI)
	VMOVUPS Y3, 96(DI)
	ADDQ $128, SI
	ADDQ R8, DI
	DECQ CX
	JNZ  panel
	VZEROUPPER
	RET
