//go:build !purego

#include "textflag.h"

// The sweep of AVX-512: it computes a tile of up to 14 rows of C, over all columns, two vectors
// of 16 columns at a time. There is one function for each number of rows, and a second one for
// tiles of 8 rows or more in which the columns of A are contiguous, so that aRow is 4.
//
// The layout of sweepArgs (sweep.go), by offset:
//
//	 0 a    8 aRow   16 aDepth   element (i, l) of the tile of A is at a + i·aRow + l·aDepth
//	24 b   32 bDepth 40 bPanel   row l of panel p of B is at b + p·bPanel + l·bDepth
//	48 c   56 cRow               row i of panel p of C is at c + i·cRow + p·128
//	64 add                       whether the sums begin with what is in C
//	72 depth                     the number of l, at least 1
//	80 cols                      the number of columns, at least 1
//	88 ahead 96 aheadStep 104 aheadPanel  the two lines to prefetch at l: ahead + p·aheadPanel + l·aheadStep; none if aheadStep is 0
//	112 after                    c of the next call, to be prefetched
//
// Registers of a panel:
//
//	Z0..Z27   sums: row i has Z(2i) and Z(2i+1)
//	Z28, Z29  row l of the panel of B
//	Z30       an element of A in every lane
//	K1        the columns of the last vector that exist
//	AX, BX    rows 0 and 7 of A at l; R8, R9, R10 have aRow times 1, 3, 5; R11 has aDepth
//	SI        B at l; R12 has bDepth
//	CX        the number of l left
//	DI        the sweep; b, c, cols and ahead in it move on from panel to panel
//	DX, R13   C and its row
//	R14, R15  the address to prefetch at l, and aheadStep
//
// A step loads one row of B and, for each row of A, one element into all lanes. 8 sums hide the
// latency of an FMA (4 cycles, at 2 FMAs a cycle), and one load serves two FMAs, so that loads are
// not the bottleneck. A masked load takes the place of an FMA. Only a last panel of less than 32
// columns has masked loads.
//
// If the core's second thread is busy, the number of instructions is the bottleneck. An FMA can
// load its element of A itself, which takes one instruction less and one load more. In tight tiles
// every second row does this, so that loads are still not the bottleneck. With an index such an
// FMA counts as two instructions, so tiles whose rows are apart have none.
//
// If aheadStep is not 0, each step of a whole panel prefetches row l+8 of B: the rows of a B that
// is not packed are pages apart, and the processor does not prefetch them on its own. If the tile
// has more than 4 rows, the step also prefetches two lines, of the next panel of B or of another
// block, into the second-level cache. A panel that adds to C prefetches the rows of C of the next
// panel. The last panel prefetches those of the next call.

#define MUL2(from, x, y) VBROADCASTSS from, Z30; VFMADD231PS Z28, Z30, x; VFMADD231PS Z29, Z30, y
#define MUL1(from, x) VBROADCASTSS from, Z30; VFMADD231PS Z28, Z30, x
#define TIGHT2(off, x, y) VFMADD231PS.BCST off(AX), Z28, x; VFMADD231PS.BCST off(AX), Z29, y
#define TIGHT1(off, x) VFMADD231PS.BCST off(AX), Z28, x
#define ZERO(x, y) VPXORQ x, x, x; VPXORQ y, y, y
#define WHOLE(x, y) VMOVUPS (DX), x; VMOVUPS 64(DX), y; ADDQ R13, DX
#define LOAD2(x, y) VMOVUPS (DX), x; VMOVUPS.Z 64(DX), K1, y; ADDQ R13, DX
#define LOAD1(x) VMOVUPS.Z (DX), K1, x; ADDQ R13, DX
#define KEEP(x, y) VMOVUPS x, (DX); VMOVUPS y, 64(DX); ADDQ R13, DX
#define SAVE2(x, y) VMOVUPS x, (DX); VMOVUPS y, K1, 64(DX); ADDQ R13, DX
#define SAVE1(x) VMOVUPS x, K1, (DX); ADDQ R13, DX
#define NEXT PREFETCHT0 (DX); PREFETCHT0 64(DX); ADDQ R13, DX

#define MUL2_1 MUL2((AX), Z0, Z1)
#define MUL2_2 MUL2_1; MUL2((AX)(R8*1), Z2, Z3)
#define MUL2_3 MUL2_2; MUL2((AX)(R8*2), Z4, Z5)
#define MUL2_4 MUL2_3; MUL2((AX)(R9*1), Z6, Z7)
#define MUL2_5 MUL2_4; MUL2((AX)(R8*4), Z8, Z9)
#define MUL2_6 MUL2_5; MUL2((AX)(R10*1), Z10, Z11)
#define MUL2_7 MUL2_6; MUL2((AX)(R9*2), Z12, Z13)
#define MUL2_8 MUL2_7; MUL2((BX), Z14, Z15)
#define MUL2_9 MUL2_8; MUL2((BX)(R8*1), Z16, Z17)
#define MUL2_10 MUL2_9; MUL2((BX)(R8*2), Z18, Z19)
#define MUL2_11 MUL2_10; MUL2((BX)(R9*1), Z20, Z21)
#define MUL2_12 MUL2_11; MUL2((BX)(R8*4), Z22, Z23)
#define MUL2_13 MUL2_12; MUL2((BX)(R10*1), Z24, Z25)
#define MUL2_14 MUL2_13; MUL2((BX)(R9*2), Z26, Z27)

#define MUL1_1 MUL1((AX), Z0)
#define MUL1_2 MUL1_1; MUL1((AX)(R8*1), Z2)
#define MUL1_3 MUL1_2; MUL1((AX)(R8*2), Z4)
#define MUL1_4 MUL1_3; MUL1((AX)(R9*1), Z6)
#define MUL1_5 MUL1_4; MUL1((AX)(R8*4), Z8)
#define MUL1_6 MUL1_5; MUL1((AX)(R10*1), Z10)
#define MUL1_7 MUL1_6; MUL1((AX)(R9*2), Z12)
#define MUL1_8 MUL1_7; MUL1((BX), Z14)
#define MUL1_9 MUL1_8; MUL1((BX)(R8*1), Z16)
#define MUL1_10 MUL1_9; MUL1((BX)(R8*2), Z18)
#define MUL1_11 MUL1_10; MUL1((BX)(R9*1), Z20)
#define MUL1_12 MUL1_11; MUL1((BX)(R8*4), Z22)
#define MUL1_13 MUL1_12; MUL1((BX)(R10*1), Z24)
#define MUL1_14 MUL1_13; MUL1((BX)(R9*2), Z26)

#define TIGHT2_1 MUL2((AX), Z0, Z1)
#define TIGHT2_2 TIGHT2_1; TIGHT2(4, Z2, Z3)
#define TIGHT2_3 TIGHT2_2; MUL2(8(AX), Z4, Z5)
#define TIGHT2_4 TIGHT2_3; TIGHT2(12, Z6, Z7)
#define TIGHT2_5 TIGHT2_4; MUL2(16(AX), Z8, Z9)
#define TIGHT2_6 TIGHT2_5; TIGHT2(20, Z10, Z11)
#define TIGHT2_7 TIGHT2_6; MUL2(24(AX), Z12, Z13)
#define TIGHT2_8 TIGHT2_7; TIGHT2(28, Z14, Z15)
#define TIGHT2_9 TIGHT2_8; MUL2(32(AX), Z16, Z17)
#define TIGHT2_10 TIGHT2_9; TIGHT2(36, Z18, Z19)
#define TIGHT2_11 TIGHT2_10; MUL2(40(AX), Z20, Z21)
#define TIGHT2_12 TIGHT2_11; TIGHT2(44, Z22, Z23)
#define TIGHT2_13 TIGHT2_12; MUL2(48(AX), Z24, Z25)
#define TIGHT2_14 TIGHT2_13; TIGHT2(52, Z26, Z27)

#define TIGHT1_1 TIGHT1(0, Z0)
#define TIGHT1_2 TIGHT1_1; TIGHT1(4, Z2)
#define TIGHT1_3 TIGHT1_2; TIGHT1(8, Z4)
#define TIGHT1_4 TIGHT1_3; TIGHT1(12, Z6)
#define TIGHT1_5 TIGHT1_4; TIGHT1(16, Z8)
#define TIGHT1_6 TIGHT1_5; TIGHT1(20, Z10)
#define TIGHT1_7 TIGHT1_6; TIGHT1(24, Z12)
#define TIGHT1_8 TIGHT1_7; TIGHT1(28, Z14)
#define TIGHT1_9 TIGHT1_8; TIGHT1(32, Z16)
#define TIGHT1_10 TIGHT1_9; TIGHT1(36, Z18)
#define TIGHT1_11 TIGHT1_10; TIGHT1(40, Z20)
#define TIGHT1_12 TIGHT1_11; TIGHT1(44, Z22)
#define TIGHT1_13 TIGHT1_12; TIGHT1(48, Z24)
#define TIGHT1_14 TIGHT1_13; TIGHT1(52, Z26)

#define ZERO_1 ZERO(Z0, Z1)
#define ZERO_2 ZERO_1; ZERO(Z2, Z3)
#define ZERO_3 ZERO_2; ZERO(Z4, Z5)
#define ZERO_4 ZERO_3; ZERO(Z6, Z7)
#define ZERO_5 ZERO_4; ZERO(Z8, Z9)
#define ZERO_6 ZERO_5; ZERO(Z10, Z11)
#define ZERO_7 ZERO_6; ZERO(Z12, Z13)
#define ZERO_8 ZERO_7; ZERO(Z14, Z15)
#define ZERO_9 ZERO_8; ZERO(Z16, Z17)
#define ZERO_10 ZERO_9; ZERO(Z18, Z19)
#define ZERO_11 ZERO_10; ZERO(Z20, Z21)
#define ZERO_12 ZERO_11; ZERO(Z22, Z23)
#define ZERO_13 ZERO_12; ZERO(Z24, Z25)
#define ZERO_14 ZERO_13; ZERO(Z26, Z27)

#define WHOLE_1 WHOLE(Z0, Z1)
#define WHOLE_2 WHOLE_1; WHOLE(Z2, Z3)
#define WHOLE_3 WHOLE_2; WHOLE(Z4, Z5)
#define WHOLE_4 WHOLE_3; WHOLE(Z6, Z7)
#define WHOLE_5 WHOLE_4; WHOLE(Z8, Z9)
#define WHOLE_6 WHOLE_5; WHOLE(Z10, Z11)
#define WHOLE_7 WHOLE_6; WHOLE(Z12, Z13)
#define WHOLE_8 WHOLE_7; WHOLE(Z14, Z15)
#define WHOLE_9 WHOLE_8; WHOLE(Z16, Z17)
#define WHOLE_10 WHOLE_9; WHOLE(Z18, Z19)
#define WHOLE_11 WHOLE_10; WHOLE(Z20, Z21)
#define WHOLE_12 WHOLE_11; WHOLE(Z22, Z23)
#define WHOLE_13 WHOLE_12; WHOLE(Z24, Z25)
#define WHOLE_14 WHOLE_13; WHOLE(Z26, Z27)

#define LOAD2_1 LOAD2(Z0, Z1)
#define LOAD2_2 LOAD2_1; LOAD2(Z2, Z3)
#define LOAD2_3 LOAD2_2; LOAD2(Z4, Z5)
#define LOAD2_4 LOAD2_3; LOAD2(Z6, Z7)
#define LOAD2_5 LOAD2_4; LOAD2(Z8, Z9)
#define LOAD2_6 LOAD2_5; LOAD2(Z10, Z11)
#define LOAD2_7 LOAD2_6; LOAD2(Z12, Z13)
#define LOAD2_8 LOAD2_7; LOAD2(Z14, Z15)
#define LOAD2_9 LOAD2_8; LOAD2(Z16, Z17)
#define LOAD2_10 LOAD2_9; LOAD2(Z18, Z19)
#define LOAD2_11 LOAD2_10; LOAD2(Z20, Z21)
#define LOAD2_12 LOAD2_11; LOAD2(Z22, Z23)
#define LOAD2_13 LOAD2_12; LOAD2(Z24, Z25)
#define LOAD2_14 LOAD2_13; LOAD2(Z26, Z27)

#define LOAD1_1 LOAD1(Z0)
#define LOAD1_2 LOAD1_1; LOAD1(Z2)
#define LOAD1_3 LOAD1_2; LOAD1(Z4)
#define LOAD1_4 LOAD1_3; LOAD1(Z6)
#define LOAD1_5 LOAD1_4; LOAD1(Z8)
#define LOAD1_6 LOAD1_5; LOAD1(Z10)
#define LOAD1_7 LOAD1_6; LOAD1(Z12)
#define LOAD1_8 LOAD1_7; LOAD1(Z14)
#define LOAD1_9 LOAD1_8; LOAD1(Z16)
#define LOAD1_10 LOAD1_9; LOAD1(Z18)
#define LOAD1_11 LOAD1_10; LOAD1(Z20)
#define LOAD1_12 LOAD1_11; LOAD1(Z22)
#define LOAD1_13 LOAD1_12; LOAD1(Z24)
#define LOAD1_14 LOAD1_13; LOAD1(Z26)

#define KEEP_1 KEEP(Z0, Z1)
#define KEEP_2 KEEP_1; KEEP(Z2, Z3)
#define KEEP_3 KEEP_2; KEEP(Z4, Z5)
#define KEEP_4 KEEP_3; KEEP(Z6, Z7)
#define KEEP_5 KEEP_4; KEEP(Z8, Z9)
#define KEEP_6 KEEP_5; KEEP(Z10, Z11)
#define KEEP_7 KEEP_6; KEEP(Z12, Z13)
#define KEEP_8 KEEP_7; KEEP(Z14, Z15)
#define KEEP_9 KEEP_8; KEEP(Z16, Z17)
#define KEEP_10 KEEP_9; KEEP(Z18, Z19)
#define KEEP_11 KEEP_10; KEEP(Z20, Z21)
#define KEEP_12 KEEP_11; KEEP(Z22, Z23)
#define KEEP_13 KEEP_12; KEEP(Z24, Z25)
#define KEEP_14 KEEP_13; KEEP(Z26, Z27)

#define SAVE2_1 SAVE2(Z0, Z1)
#define SAVE2_2 SAVE2_1; SAVE2(Z2, Z3)
#define SAVE2_3 SAVE2_2; SAVE2(Z4, Z5)
#define SAVE2_4 SAVE2_3; SAVE2(Z6, Z7)
#define SAVE2_5 SAVE2_4; SAVE2(Z8, Z9)
#define SAVE2_6 SAVE2_5; SAVE2(Z10, Z11)
#define SAVE2_7 SAVE2_6; SAVE2(Z12, Z13)
#define SAVE2_8 SAVE2_7; SAVE2(Z14, Z15)
#define SAVE2_9 SAVE2_8; SAVE2(Z16, Z17)
#define SAVE2_10 SAVE2_9; SAVE2(Z18, Z19)
#define SAVE2_11 SAVE2_10; SAVE2(Z20, Z21)
#define SAVE2_12 SAVE2_11; SAVE2(Z22, Z23)
#define SAVE2_13 SAVE2_12; SAVE2(Z24, Z25)
#define SAVE2_14 SAVE2_13; SAVE2(Z26, Z27)

#define SAVE1_1 SAVE1(Z0)
#define SAVE1_2 SAVE1_1; SAVE1(Z2)
#define SAVE1_3 SAVE1_2; SAVE1(Z4)
#define SAVE1_4 SAVE1_3; SAVE1(Z6)
#define SAVE1_5 SAVE1_4; SAVE1(Z8)
#define SAVE1_6 SAVE1_5; SAVE1(Z10)
#define SAVE1_7 SAVE1_6; SAVE1(Z12)
#define SAVE1_8 SAVE1_7; SAVE1(Z14)
#define SAVE1_9 SAVE1_8; SAVE1(Z16)
#define SAVE1_10 SAVE1_9; SAVE1(Z18)
#define SAVE1_11 SAVE1_10; SAVE1(Z20)
#define SAVE1_12 SAVE1_11; SAVE1(Z22)
#define SAVE1_13 SAVE1_12; SAVE1(Z24)
#define SAVE1_14 SAVE1_13; SAVE1(Z26)

#define NEXT_1 NEXT
#define NEXT_2 NEXT_1; NEXT
#define NEXT_3 NEXT_2; NEXT
#define NEXT_4 NEXT_3; NEXT
#define NEXT_5 NEXT_4; NEXT
#define NEXT_6 NEXT_5; NEXT
#define NEXT_7 NEXT_6; NEXT
#define NEXT_8 NEXT_7; NEXT
#define NEXT_9 NEXT_8; NEXT
#define NEXT_10 NEXT_9; NEXT
#define NEXT_11 NEXT_10; NEXT
#define NEXT_12 NEXT_11; NEXT
#define NEXT_13 NEXT_12; NEXT
#define NEXT_14 NEXT_13; NEXT

// ROW loads a row of a panel of B; ROW2 and ROW1 its last vector under the mask.
#define ROW VMOVUPS (SI), Z28; VMOVUPS 64(SI), Z29
#define ROW2 VMOVUPS (SI), Z28; VMOVUPS.Z 64(SI), K1, Z29
#define ROW1 VMOVUPS.Z (SI), K1, Z28

// FETCH prefetches row l+8 of B; AHEAD also prefetches at R14.
#define FETCH PREFETCHT0 (SI)(R12*8); PREFETCHT0 64(SI)(R12*8)
#define AHEAD PREFETCHT1 (R14); PREFETCHT1 64(R14); ADDQ R15, R14; FETCH
#define NOTHING

// LOOP runs the steps of a panel.
#define LOOP(name, FETCHES, ROWS, MULS) \
name: \
	FETCHES; \
	ROWS; \
	ADDQ R12, SI; \
	MULS; \
	ADDQ R11, AX; \
	ADDQ R11, BX; \
	DECQ CX; \
	JNZ  name

// BEGIN sets the pointers of C.
#define BEGIN MOVQ 48(DI), DX; MOVQ 56(DI), R13

#define SWEEP(MULS2, MULS1, ZEROS, WHOLES, LOADS2, LOADS1, KEEPS, SAVES2, SAVES1, NEXTS, AHEADS) \
	MOVQ s+0(FP), DI; \
	MOVQ 8(DI), R8; \
	LEAQ (R8)(R8*2), R9; \
	LEAQ (R8)(R8*4), R10; \
	MOVQ 16(DI), R11; \
	MOVQ 32(DI), R12; \
	MOVQ 96(DI), R15; \
panel: \
	MOVQ 0(DI), AX; \
	LEAQ (AX)(R9*2), BX; \
	ADDQ R8, BX; \
	MOVQ 24(DI), SI; \
	MOVQ 80(DI), CX; \
	BEGIN; \
	CMPQ CX, $32; \
	JLT  edge; \
	CMPQ 64(DI), $0; \
	JEQ  zero; \
	WHOLES; \
	MOVQ 48(DI), DX; \
	ADDQ $128, DX; \
	CMPQ CX, $32; \
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
	LOOP(ahead, AHEADS, ROW, MULS2); \
keep: \
	BEGIN; \
	KEEPS; \
	SUBQ $32, 80(DI); \
	JLE  done; \
	ADDQ $128, 48(DI); \
	MOVQ 40(DI), DX; \
	ADDQ DX, 24(DI); \
	MOVQ 104(DI), DX; \
	ADDQ DX, 88(DI); \
	JMP  panel; \
edge: \
	LEAQ -1(CX), R14; \
	ANDQ $15, R14; \
	XORQ $15, R14; \
	MOVL $0xFFFF, AX; \
	SHRXL R14, AX, AX; \
	KMOVW AX, K1; \
	MOVQ 0(DI), AX; \
	CMPQ CX, $16; \
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

// func sweep512x1(s *sweepArgs)
TEXT sweep512x1<>(SB), NOSPLIT, $0-8
	SWEEP(MUL2_1, MUL1_1, ZERO_1, WHOLE_1, LOAD2_1, LOAD1_1, KEEP_1, SAVE2_1, SAVE1_1, NEXT_1, FETCH)

// func sweep512x2(s *sweepArgs)
TEXT sweep512x2<>(SB), NOSPLIT, $0-8
	SWEEP(MUL2_2, MUL1_2, ZERO_2, WHOLE_2, LOAD2_2, LOAD1_2, KEEP_2, SAVE2_2, SAVE1_2, NEXT_2, FETCH)

// func sweep512x3(s *sweepArgs)
TEXT sweep512x3<>(SB), NOSPLIT, $0-8
	SWEEP(MUL2_3, MUL1_3, ZERO_3, WHOLE_3, LOAD2_3, LOAD1_3, KEEP_3, SAVE2_3, SAVE1_3, NEXT_3, FETCH)

// func sweep512x4(s *sweepArgs)
TEXT sweep512x4<>(SB), NOSPLIT, $0-8
	SWEEP(MUL2_4, MUL1_4, ZERO_4, WHOLE_4, LOAD2_4, LOAD1_4, KEEP_4, SAVE2_4, SAVE1_4, NEXT_4, FETCH)

// func sweep512x5(s *sweepArgs)
TEXT sweep512x5<>(SB), NOSPLIT, $0-8
	SWEEP(MUL2_5, MUL1_5, ZERO_5, WHOLE_5, LOAD2_5, LOAD1_5, KEEP_5, SAVE2_5, SAVE1_5, NEXT_5, AHEAD)

// func sweep512x6(s *sweepArgs)
TEXT sweep512x6<>(SB), NOSPLIT, $0-8
	SWEEP(MUL2_6, MUL1_6, ZERO_6, WHOLE_6, LOAD2_6, LOAD1_6, KEEP_6, SAVE2_6, SAVE1_6, NEXT_6, AHEAD)

// func sweep512x7(s *sweepArgs)
TEXT sweep512x7<>(SB), NOSPLIT, $0-8
	SWEEP(MUL2_7, MUL1_7, ZERO_7, WHOLE_7, LOAD2_7, LOAD1_7, KEEP_7, SAVE2_7, SAVE1_7, NEXT_7, AHEAD)

// func sweep512x8(s *sweepArgs)
TEXT sweep512x8<>(SB), NOSPLIT, $0-8
	SWEEP(MUL2_8, MUL1_8, ZERO_8, WHOLE_8, LOAD2_8, LOAD1_8, KEEP_8, SAVE2_8, SAVE1_8, NEXT_8, AHEAD)

// func sweep512x9(s *sweepArgs)
TEXT sweep512x9<>(SB), NOSPLIT, $0-8
	SWEEP(MUL2_9, MUL1_9, ZERO_9, WHOLE_9, LOAD2_9, LOAD1_9, KEEP_9, SAVE2_9, SAVE1_9, NEXT_9, AHEAD)

// func sweep512x10(s *sweepArgs)
TEXT sweep512x10<>(SB), NOSPLIT, $0-8
	SWEEP(MUL2_10, MUL1_10, ZERO_10, WHOLE_10, LOAD2_10, LOAD1_10, KEEP_10, SAVE2_10, SAVE1_10, NEXT_10, AHEAD)

// func sweep512x11(s *sweepArgs)
TEXT sweep512x11<>(SB), NOSPLIT, $0-8
	SWEEP(MUL2_11, MUL1_11, ZERO_11, WHOLE_11, LOAD2_11, LOAD1_11, KEEP_11, SAVE2_11, SAVE1_11, NEXT_11, AHEAD)

// func sweep512x12(s *sweepArgs)
TEXT sweep512x12<>(SB), NOSPLIT, $0-8
	SWEEP(MUL2_12, MUL1_12, ZERO_12, WHOLE_12, LOAD2_12, LOAD1_12, KEEP_12, SAVE2_12, SAVE1_12, NEXT_12, AHEAD)

// func sweep512x13(s *sweepArgs)
TEXT sweep512x13<>(SB), NOSPLIT, $0-8
	SWEEP(MUL2_13, MUL1_13, ZERO_13, WHOLE_13, LOAD2_13, LOAD1_13, KEEP_13, SAVE2_13, SAVE1_13, NEXT_13, AHEAD)

// func sweep512x14(s *sweepArgs)
TEXT sweep512x14<>(SB), NOSPLIT, $0-8
	SWEEP(MUL2_14, MUL1_14, ZERO_14, WHOLE_14, LOAD2_14, LOAD1_14, KEEP_14, SAVE2_14, SAVE1_14, NEXT_14, AHEAD)

// func tight512x8(s *sweepArgs)
TEXT tight512x8<>(SB), NOSPLIT, $0-8
	SWEEP(TIGHT2_8, TIGHT1_8, ZERO_8, WHOLE_8, LOAD2_8, LOAD1_8, KEEP_8, SAVE2_8, SAVE1_8, NEXT_8, AHEAD)

// func tight512x9(s *sweepArgs)
TEXT tight512x9<>(SB), NOSPLIT, $0-8
	SWEEP(TIGHT2_9, TIGHT1_9, ZERO_9, WHOLE_9, LOAD2_9, LOAD1_9, KEEP_9, SAVE2_9, SAVE1_9, NEXT_9, AHEAD)

// func tight512x10(s *sweepArgs)
TEXT tight512x10<>(SB), NOSPLIT, $0-8
	SWEEP(TIGHT2_10, TIGHT1_10, ZERO_10, WHOLE_10, LOAD2_10, LOAD1_10, KEEP_10, SAVE2_10, SAVE1_10, NEXT_10, AHEAD)

// func tight512x11(s *sweepArgs)
TEXT tight512x11<>(SB), NOSPLIT, $0-8
	SWEEP(TIGHT2_11, TIGHT1_11, ZERO_11, WHOLE_11, LOAD2_11, LOAD1_11, KEEP_11, SAVE2_11, SAVE1_11, NEXT_11, AHEAD)

// func tight512x12(s *sweepArgs)
TEXT tight512x12<>(SB), NOSPLIT, $0-8
	SWEEP(TIGHT2_12, TIGHT1_12, ZERO_12, WHOLE_12, LOAD2_12, LOAD1_12, KEEP_12, SAVE2_12, SAVE1_12, NEXT_12, AHEAD)

// func tight512x13(s *sweepArgs)
TEXT tight512x13<>(SB), NOSPLIT, $0-8
	SWEEP(TIGHT2_13, TIGHT1_13, ZERO_13, WHOLE_13, LOAD2_13, LOAD1_13, KEEP_13, SAVE2_13, SAVE1_13, NEXT_13, AHEAD)

// func tight512x14(s *sweepArgs)
TEXT tight512x14<>(SB), NOSPLIT, $0-8
	SWEEP(TIGHT2_14, TIGHT1_14, ZERO_14, WHOLE_14, LOAD2_14, LOAD1_14, KEEP_14, SAVE2_14, SAVE1_14, NEXT_14, AHEAD)

DATA sweep512_rows<>+0(SB)/8, $sweep512x1<>(SB)
DATA sweep512_rows<>+8(SB)/8, $sweep512x2<>(SB)
DATA sweep512_rows<>+16(SB)/8, $sweep512x3<>(SB)
DATA sweep512_rows<>+24(SB)/8, $sweep512x4<>(SB)
DATA sweep512_rows<>+32(SB)/8, $sweep512x5<>(SB)
DATA sweep512_rows<>+40(SB)/8, $sweep512x6<>(SB)
DATA sweep512_rows<>+48(SB)/8, $sweep512x7<>(SB)
DATA sweep512_rows<>+56(SB)/8, $sweep512x8<>(SB)
DATA sweep512_rows<>+64(SB)/8, $sweep512x9<>(SB)
DATA sweep512_rows<>+72(SB)/8, $sweep512x10<>(SB)
DATA sweep512_rows<>+80(SB)/8, $sweep512x11<>(SB)
DATA sweep512_rows<>+88(SB)/8, $sweep512x12<>(SB)
DATA sweep512_rows<>+96(SB)/8, $sweep512x13<>(SB)
DATA sweep512_rows<>+104(SB)/8, $sweep512x14<>(SB)
GLOBL sweep512_rows<>(SB), RODATA|NOPTR, $112

// sweep512 jumps to the sweep for a number of rows.
TEXT ·sweep512(SB), NOSPLIT, $0-16
	MOVQ rows+8(FP), AX
	LEAQ sweep512_rows<>(SB), BX
	MOVQ -8(BX)(AX*8), AX
	JMP AX

DATA tight512_rows<>+0(SB)/8, $tight512x8<>(SB)
DATA tight512_rows<>+8(SB)/8, $tight512x9<>(SB)
DATA tight512_rows<>+16(SB)/8, $tight512x10<>(SB)
DATA tight512_rows<>+24(SB)/8, $tight512x11<>(SB)
DATA tight512_rows<>+32(SB)/8, $tight512x12<>(SB)
DATA tight512_rows<>+40(SB)/8, $tight512x13<>(SB)
DATA tight512_rows<>+48(SB)/8, $tight512x14<>(SB)
GLOBL tight512_rows<>(SB), RODATA|NOPTR, $56

// tight512 jumps to the tight sweep for a number of rows.
TEXT ·tight512(SB), NOSPLIT, $0-16
	MOVQ rows+8(FP), AX
	LEAQ tight512_rows<>(SB), BX
	MOVQ -64(BX)(AX*8), AX
	JMP AX
