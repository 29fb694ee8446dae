//go:build !purego

#include "textflag.h"

// The sweep of AVX2 and FMA: it computes a tile of up to 6 rows of C, over all columns, two
// vectors of 8 columns at a time. There is one function for each number of rows. The layout of
// sweepArgs is described in sweep512_amd64.s, but here a panel has 16 columns, and each of its
// rows 64 bytes.
//
// Registers of a panel:
//
//	Y0..Y11   sums: row i has Y(2i) and Y(2i+1)
//	Y12, Y13  row l of the panel of B
//	Y14       an element of A in every lane
//	Y15       the columns of the last vector that exist
//	AX        row 0 of A at l; R8, R9, R10 have aRow times 1, 3, 5; R11 has aDepth
//	SI        B at l; R12 has bDepth
//	CX        the number of l left
//	DI        the sweep; b, c, cols and ahead in it move on from panel to panel
//	DX, R13   C and its row
//	R14, R15  the address to prefetch at l, and aheadStep
//
// If aheadStep is not 0, each step of a whole panel prefetches row l+8 of B, and one line at
// ahead for any number of rows of the tile.

// lanes has the masks. The mask of n columns begins 8-n words after its start.
DATA lanes<>+0(SB)/8, $-1
DATA lanes<>+8(SB)/8, $-1
DATA lanes<>+16(SB)/8, $-1
DATA lanes<>+24(SB)/8, $-1
DATA lanes<>+32(SB)/8, $0
DATA lanes<>+40(SB)/8, $0
DATA lanes<>+48(SB)/8, $0
DATA lanes<>+56(SB)/8, $0
GLOBL lanes<>(SB), RODATA|NOPTR, $64

#define MUL2(from, x, y) VBROADCASTSS from, Y14; VFMADD231PS Y12, Y14, x; VFMADD231PS Y13, Y14, y
#define MUL1(from, x) VBROADCASTSS from, Y14; VFMADD231PS Y12, Y14, x
#define ZERO(x, y) VXORPS x, x, x; VXORPS y, y, y
#define WHOLE(x, y) VMOVUPS (DX), x; VMOVUPS 32(DX), y; ADDQ R13, DX
#define LOAD2(x, y) VMOVUPS (DX), x; VMASKMOVPS 32(DX), Y15, y; ADDQ R13, DX
#define LOAD1(x) VMASKMOVPS (DX), Y15, x; ADDQ R13, DX
#define KEEP(x, y) VMOVUPS x, (DX); VMOVUPS y, 32(DX); ADDQ R13, DX
#define SAVE2(x, y) VMOVUPS x, (DX); VMASKMOVPS y, Y15, 32(DX); ADDQ R13, DX
#define SAVE1(x) VMASKMOVPS x, Y15, (DX); ADDQ R13, DX
#define NEXT PREFETCHT0 (DX); ADDQ R13, DX

#define MUL2_1 MUL2((AX), Y0, Y1)
#define MUL2_2 MUL2_1; MUL2((AX)(R8*1), Y2, Y3)
#define MUL2_3 MUL2_2; MUL2((AX)(R8*2), Y4, Y5)
#define MUL2_4 MUL2_3; MUL2((AX)(R9*1), Y6, Y7)
#define MUL2_5 MUL2_4; MUL2((AX)(R8*4), Y8, Y9)
#define MUL2_6 MUL2_5; MUL2((AX)(R10*1), Y10, Y11)

#define MUL1_1 MUL1((AX), Y0)
#define MUL1_2 MUL1_1; MUL1((AX)(R8*1), Y2)
#define MUL1_3 MUL1_2; MUL1((AX)(R8*2), Y4)
#define MUL1_4 MUL1_3; MUL1((AX)(R9*1), Y6)
#define MUL1_5 MUL1_4; MUL1((AX)(R8*4), Y8)
#define MUL1_6 MUL1_5; MUL1((AX)(R10*1), Y10)

#define ZERO_1 ZERO(Y0, Y1)
#define ZERO_2 ZERO_1; ZERO(Y2, Y3)
#define ZERO_3 ZERO_2; ZERO(Y4, Y5)
#define ZERO_4 ZERO_3; ZERO(Y6, Y7)
#define ZERO_5 ZERO_4; ZERO(Y8, Y9)
#define ZERO_6 ZERO_5; ZERO(Y10, Y11)

#define WHOLE_1 WHOLE(Y0, Y1)
#define WHOLE_2 WHOLE_1; WHOLE(Y2, Y3)
#define WHOLE_3 WHOLE_2; WHOLE(Y4, Y5)
#define WHOLE_4 WHOLE_3; WHOLE(Y6, Y7)
#define WHOLE_5 WHOLE_4; WHOLE(Y8, Y9)
#define WHOLE_6 WHOLE_5; WHOLE(Y10, Y11)

#define LOAD2_1 LOAD2(Y0, Y1)
#define LOAD2_2 LOAD2_1; LOAD2(Y2, Y3)
#define LOAD2_3 LOAD2_2; LOAD2(Y4, Y5)
#define LOAD2_4 LOAD2_3; LOAD2(Y6, Y7)
#define LOAD2_5 LOAD2_4; LOAD2(Y8, Y9)
#define LOAD2_6 LOAD2_5; LOAD2(Y10, Y11)

#define LOAD1_1 LOAD1(Y0)
#define LOAD1_2 LOAD1_1; LOAD1(Y2)
#define LOAD1_3 LOAD1_2; LOAD1(Y4)
#define LOAD1_4 LOAD1_3; LOAD1(Y6)
#define LOAD1_5 LOAD1_4; LOAD1(Y8)
#define LOAD1_6 LOAD1_5; LOAD1(Y10)

#define KEEP_1 KEEP(Y0, Y1)
#define KEEP_2 KEEP_1; KEEP(Y2, Y3)
#define KEEP_3 KEEP_2; KEEP(Y4, Y5)
#define KEEP_4 KEEP_3; KEEP(Y6, Y7)
#define KEEP_5 KEEP_4; KEEP(Y8, Y9)
#define KEEP_6 KEEP_5; KEEP(Y10, Y11)

#define SAVE2_1 SAVE2(Y0, Y1)
#define SAVE2_2 SAVE2_1; SAVE2(Y2, Y3)
#define SAVE2_3 SAVE2_2; SAVE2(Y4, Y5)
#define SAVE2_4 SAVE2_3; SAVE2(Y6, Y7)
#define SAVE2_5 SAVE2_4; SAVE2(Y8, Y9)
#define SAVE2_6 SAVE2_5; SAVE2(Y10, Y11)

#define SAVE1_1 SAVE1(Y0)
#define SAVE1_2 SAVE1_1; SAVE1(Y2)
#define SAVE1_3 SAVE1_2; SAVE1(Y4)
#define SAVE1_4 SAVE1_3; SAVE1(Y6)
#define SAVE1_5 SAVE1_4; SAVE1(Y8)
#define SAVE1_6 SAVE1_5; SAVE1(Y10)

#define NEXT_1 NEXT
#define NEXT_2 NEXT_1; NEXT
#define NEXT_3 NEXT_2; NEXT
#define NEXT_4 NEXT_3; NEXT
#define NEXT_5 NEXT_4; NEXT
#define NEXT_6 NEXT_5; NEXT

// ROW loads a row of a panel of B; ROW2 and ROW1 its last vector under the mask.
#define ROW VMOVUPS (SI), Y12; VMOVUPS 32(SI), Y13
#define ROW2 VMOVUPS (SI), Y12; VMASKMOVPS 32(SI), Y15, Y13
#define ROW1 VMASKMOVPS (SI), Y15, Y12

// FETCH prefetches row l+8 of B; AHEAD also prefetches at R14.
#define FETCH PREFETCHT0 (SI)(R12*8)
#define AHEAD PREFETCHT1 (R14); ADDQ R15, R14; FETCH
#define NOTHING

// LOOP runs the steps of a panel.
#define LOOP(name, FETCHES, ROWS, MULS) \
name: \
	FETCHES; \
	ROWS; \
	ADDQ R12, SI; \
	MULS; \
	ADDQ R11, AX; \
	DECQ CX; \
	JNZ  name

// BEGIN sets the pointers of C.
#define BEGIN MOVQ 48(DI), DX; MOVQ 56(DI), R13

#define SWEEP(MULS2, MULS1, ZEROS, WHOLES, LOADS2, LOADS1, KEEPS, SAVES2, SAVES1, NEXTS) \
	MOVQ s+0(FP), DI; \
	MOVQ 8(DI), R8; \
	LEAQ (R8)(R8*2), R9; \
	LEAQ (R8)(R8*4), R10; \
	MOVQ 16(DI), R11; \
	MOVQ 32(DI), R12; \
	MOVQ 96(DI), R15; \
panel: \
	MOVQ 0(DI), AX; \
	MOVQ 24(DI), SI; \
	MOVQ 80(DI), CX; \
	BEGIN; \
	CMPQ CX, $16; \
	JLT  edge; \
	CMPQ 64(DI), $0; \
	JEQ  zero; \
	WHOLES; \
	MOVQ 48(DI), DX; \
	ADDQ $64, DX; \
	CMPQ CX, $16; \
	CMOVQEQ 112(DI), DX; \
	NEXTS; \
	JMP  begin; \
zero: \
	ZEROS; \
begin: \
	MOVQ 72(DI), CX; \
	MOVQ 88(DI), R14; \
	TESTQ R15, R15; \
	JNE  ahead; \
	LOOP(loop, NOTHING, ROW, MULS2); \
	JMP  keep; \
	LOOP(ahead, AHEAD, ROW, MULS2); \
keep: \
	BEGIN; \
	KEEPS; \
	SUBQ $16, 80(DI); \
	JLE  done; \
	ADDQ $64, 48(DI); \
	MOVQ 40(DI), DX; \
	ADDQ DX, 24(DI); \
	MOVQ 104(DI), DX; \
	ADDQ DX, 88(DI); \
	JMP  panel; \
edge: \
	LEAQ -1(CX), R14; \
	ANDQ $7, R14; \
	NEGQ R14; \
	LEAQ lanes<>+28(SB), BX; \
	VMOVUPS (BX)(R14*4), Y15; \
	CMPQ CX, $8; \
	JLE  edge1; \
edge2: \
	CMPQ 64(DI), $0; \
	JEQ  zero2; \
	LOADS2; \
	MOVQ 112(DI), DX; \
	NEXTS; \
	JMP  begin2; \
zero2: \
	ZEROS; \
begin2: \
	MOVQ 72(DI), CX; \
	LOOP(loop2, NOTHING, ROW2, MULS2); \
	BEGIN; \
	SAVES2; \
	JMP  done; \
edge1: \
	CMPQ 64(DI), $0; \
	JEQ  zero1; \
	LOADS1; \
	MOVQ 112(DI), DX; \
	NEXTS; \
	JMP  begin1; \
zero1: \
	ZEROS; \
begin1: \
	MOVQ 72(DI), CX; \
	LOOP(loop1, NOTHING, ROW1, MULS1); \
	BEGIN; \
	SAVES1; \
done: \
	VZEROUPPER; \
	RET

// func sweep256x1(s *sweepArgs)
TEXT sweep256x1<>(SB), NOSPLIT, $0-8
	SWEEP(MUL2_1, MUL1_1, ZERO_1, WHOLE_1, LOAD2_1, LOAD1_1, KEEP_1, SAVE2_1, SAVE1_1, NEXT_1)

// func sweep256x2(s *sweepArgs)
TEXT sweep256x2<>(SB), NOSPLIT, $0-8
	SWEEP(MUL2_2, MUL1_2, ZERO_2, WHOLE_2, LOAD2_2, LOAD1_2, KEEP_2, SAVE2_2, SAVE1_2, NEXT_2)

// func sweep256x3(s *sweepArgs)
TEXT sweep256x3<>(SB), NOSPLIT, $0-8
	SWEEP(MUL2_3, MUL1_3, ZERO_3, WHOLE_3, LOAD2_3, LOAD1_3, KEEP_3, SAVE2_3, SAVE1_3, NEXT_3)

// func sweep256x4(s *sweepArgs)
TEXT sweep256x4<>(SB), NOSPLIT, $0-8
	SWEEP(MUL2_4, MUL1_4, ZERO_4, WHOLE_4, LOAD2_4, LOAD1_4, KEEP_4, SAVE2_4, SAVE1_4, NEXT_4)

// func sweep256x5(s *sweepArgs)
TEXT sweep256x5<>(SB), NOSPLIT, $0-8
	SWEEP(MUL2_5, MUL1_5, ZERO_5, WHOLE_5, LOAD2_5, LOAD1_5, KEEP_5, SAVE2_5, SAVE1_5, NEXT_5)

// func sweep256x6(s *sweepArgs)
TEXT sweep256x6<>(SB), NOSPLIT, $0-8
	SWEEP(MUL2_6, MUL1_6, ZERO_6, WHOLE_6, LOAD2_6, LOAD1_6, KEEP_6, SAVE2_6, SAVE1_6, NEXT_6)

DATA sweep256_rows<>+0(SB)/8, $sweep256x1<>(SB)
DATA sweep256_rows<>+8(SB)/8, $sweep256x2<>(SB)
DATA sweep256_rows<>+16(SB)/8, $sweep256x3<>(SB)
DATA sweep256_rows<>+24(SB)/8, $sweep256x4<>(SB)
DATA sweep256_rows<>+32(SB)/8, $sweep256x5<>(SB)
DATA sweep256_rows<>+40(SB)/8, $sweep256x6<>(SB)
GLOBL sweep256_rows<>(SB), RODATA|NOPTR, $48

// sweep256 jumps to the sweep for a number of rows.
TEXT ·sweep256(SB), NOSPLIT, $0-16
	MOVQ rows+8(FP), AX
	LEAQ sweep256_rows<>(SB), BX
	MOVQ -8(BX)(AX*8), AX
	JMP AX
