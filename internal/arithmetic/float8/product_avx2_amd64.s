//go:build amd64 && !purego

#include "textflag.h"

// Tiles of up to 6 rows and 16 columns of C, two vectors of 8 columns for each
// row, one function for each number of rows.
//
// The layout of tileArgs (product_asm.go), by offset:
//
//	 0 a         row i of the decoded tile of A is at a + 1024·i
//	 8 aFactors  its factors are at aFactors + 32·i, span after span
//	16 b         row k of the decoded panel of B is at b + 64·k
//	24 bFactors  its factors of span s are at bFactors + 64·s
//	32 c  40 cRow  row i of C is at c + i·cRow
//	48 d  56 dRow  as c and cRow: the sums of the first span are added to D and stored in C
//	64 depth     the number of rows k of the panel, at least 1
//	72 span      the number of k that are summed before the factors are applied
//
// Registers:
//
//	Y0..Y11  sums of a span: row i has Y(2i) and Y(2i+1)
//	Y12, Y13  row k of B; then the factors of B
//	Y14       an element of A, then a factor of A, in every lane
//	AX, SI    A and B at k
//	R9, R10   factors of A and B
//	CX, R11   the numbers of k left in the span, and in depth after it
//	R12       span
//	DX, R8    C at a row, and the distance between rows in bytes; R13, R14 the same for D
//	DI        args

#define MUL(at, x, y) VBROADCASTSS at(AX), Y14; VFMADD231PS Y12, Y14, x; VFMADD231PS Y13, Y14, y
#define ZERO(x, y) VXORPS x, x, x; VXORPS y, y, y
#define ADD(at, x, y) VBROADCASTSS at(R9), Y14; VMULPS Y14, x, x; VMULPS Y14, y, y; VMULPS Y12, x, x; VMULPS Y13, y, y; VADDPS (R13), x, x; VADDPS 32(R13), y, y; VMOVUPS x, (DX); VMOVUPS y, 32(DX); ADDQ R14, R13; ADDQ R8, DX
#define NEXT PREFETCHT0 (DX); ADDQ R8, DX

#define ZERO_1 ZERO(Y0, Y1)
#define ZERO_2 ZERO_1; ZERO(Y2, Y3)
#define ZERO_3 ZERO_2; ZERO(Y4, Y5)
#define ZERO_4 ZERO_3; ZERO(Y6, Y7)
#define ZERO_5 ZERO_4; ZERO(Y8, Y9)
#define ZERO_6 ZERO_5; ZERO(Y10, Y11)

#define MUL_1 MUL(0, Y0, Y1)
#define MUL_2 MUL_1; MUL(1024, Y2, Y3)
#define MUL_3 MUL_2; MUL(2048, Y4, Y5)
#define MUL_4 MUL_3; MUL(3072, Y6, Y7)
#define MUL_5 MUL_4; MUL(4096, Y8, Y9)
#define MUL_6 MUL_5; MUL(5120, Y10, Y11)

#define ADD_1 ADD(0, Y0, Y1)
#define ADD_2 ADD_1; ADD(32, Y2, Y3)
#define ADD_3 ADD_2; ADD(64, Y4, Y5)
#define ADD_4 ADD_3; ADD(96, Y6, Y7)
#define ADD_5 ADD_4; ADD(128, Y8, Y9)
#define ADD_6 ADD_5; ADD(160, Y10, Y11)

#define NEXT_1 NEXT
#define NEXT_2 NEXT_1; NEXT
#define NEXT_3 NEXT_2; NEXT
#define NEXT_4 NEXT_3; NEXT
#define NEXT_5 NEXT_4; NEXT
#define NEXT_6 NEXT_5; NEXT

#define TILE(ZEROS, MULS, ADDS, NEXTS) \
	MOVQ s+0(FP), DI; \
	MOVQ 0(DI), AX; \
	MOVQ 8(DI), R9; \
	MOVQ 16(DI), SI; \
	MOVQ 24(DI), R10; \
	MOVQ 40(DI), R8; \
	MOVQ 48(DI), R13; \
	MOVQ 56(DI), R14; \
	MOVQ 64(DI), R11; \
	MOVQ 72(DI), R12; \
	MOVQ 32(DI), DX; \
	NEXTS; \
span: \
	MOVQ R12, CX; \
	CMPQ R11, CX; \
	CMOVQLT R11, CX; \
	SUBQ CX, R11; \
	ZEROS; \
product: \
	PREFETCHT0 512(SI); \
	\
	VMOVUPS (SI), Y12; \
	VMOVUPS 32(SI), Y13; \
	MULS; \
	ADDQ $4, AX; \
	ADDQ $64, SI; \
	DECQ CX; \
	JNZ  product; \
	VMOVUPS (R10), Y12; \
	VMOVUPS 32(R10), Y13; \
	MOVQ 32(DI), DX; \
	ADDS; \
	MOVQ 32(DI), R13; \
	MOVQ R8, R14; \
	ADDQ $4, R9; \
	ADDQ $64, R10; \
	TESTQ R11, R11; \
	JNZ  span; \
	VZEROUPPER; \
	RET

// func tile256x1(s *tileArgs)
TEXT tile256x1<>(SB), NOSPLIT, $0-8
	TILE(ZERO_1, MUL_1, ADD_1, NEXT_1)

// func tile256x2(s *tileArgs)
TEXT tile256x2<>(SB), NOSPLIT, $0-8
	TILE(ZERO_2, MUL_2, ADD_2, NEXT_2)

// func tile256x3(s *tileArgs)
TEXT tile256x3<>(SB), NOSPLIT, $0-8
	TILE(ZERO_3, MUL_3, ADD_3, NEXT_3)

// func tile256x4(s *tileArgs)
TEXT tile256x4<>(SB), NOSPLIT, $0-8
	TILE(ZERO_4, MUL_4, ADD_4, NEXT_4)

// func tile256x5(s *tileArgs)
TEXT tile256x5<>(SB), NOSPLIT, $0-8
	TILE(ZERO_5, MUL_5, ADD_5, NEXT_5)

// func tile256x6(s *tileArgs)
TEXT tile256x6<>(SB), NOSPLIT, $0-8
	TILE(ZERO_6, MUL_6, ADD_6, NEXT_6)

DATA tile256_rows<>+0(SB)/8, $tile256x1<>(SB)
DATA tile256_rows<>+8(SB)/8, $tile256x2<>(SB)
DATA tile256_rows<>+16(SB)/8, $tile256x3<>(SB)
DATA tile256_rows<>+24(SB)/8, $tile256x4<>(SB)
DATA tile256_rows<>+32(SB)/8, $tile256x5<>(SB)
DATA tile256_rows<>+40(SB)/8, $tile256x6<>(SB)
GLOBL tile256_rows<>(SB), RODATA|NOPTR, $48

// tile256 jumps to the function for tiles of the given number of rows.
TEXT ·tile256(SB), NOSPLIT, $0-16
	MOVQ rows+8(FP), AX
	LEAQ tile256_rows<>(SB), BX
	MOVQ -8(BX)(AX*8), AX
	JMP AX
