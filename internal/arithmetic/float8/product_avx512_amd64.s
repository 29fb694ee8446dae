//go:build amd64 && !purego

#include "textflag.h"

// Tiles of up to 14 rows and 32 columns of C, two vectors of 16 columns for each
// row, one function for each number of rows.
//
// The layout of tileArgs (product_asm.go), by offset:
//
//	 0 a         row i of the decoded tile of A is at a + 1024·i
//	 8 aFactors  its factors are at aFactors + 32·i, span after span
//	16 b         row k of the decoded panel of B is at b + 128·k
//	24 bFactors  its factors of span s are at bFactors + 128·s
//	32 c  40 cRow  row i of C is at c + i·cRow
//	48 d  56 dRow  as c and cRow: the sums of the first span are added to D and stored in C
//	64 depth     the number of rows k of the panel, at least 1
//	72 span      the number of k that are summed before the factors are applied
//
// Registers:
//
//	Z0..Z27  sums of a span: row i has Z(2i) and Z(2i+1)
//	Z28, Z29  row k of B; then the factors of B
//	Z30       an element of A, then a factor of A, in every lane
//	AX, SI    A and B at k
//	R9, R10   factors of A and B
//	CX, R11   the numbers of k left in the span, and in depth after it
//	R12       span
//	DX, R8    C at a row, and the distance between rows in bytes; R13, R14 the same for D
//	DI        args

#define MUL(at, x, y) VBROADCASTSS at(AX), Z30; VFMADD231PS Z28, Z30, x; VFMADD231PS Z29, Z30, y
#define ZERO(x, y) VPXORQ x, x, x; VPXORQ y, y, y
#define ADD(at, x, y) VBROADCASTSS at(R9), Z30; VMULPS Z30, x, x; VMULPS Z30, y, y; VMULPS Z28, x, x; VMULPS Z29, y, y; VADDPS (R13), x, x; VADDPS 64(R13), y, y; VMOVUPS x, (DX); VMOVUPS y, 64(DX); ADDQ R14, R13; ADDQ R8, DX
#define NEXT PREFETCHT0 (DX); PREFETCHT0 64(DX); ADDQ R8, DX

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

#define MUL_1 MUL(0, Z0, Z1)
#define MUL_2 MUL_1; MUL(1024, Z2, Z3)
#define MUL_3 MUL_2; MUL(2048, Z4, Z5)
#define MUL_4 MUL_3; MUL(3072, Z6, Z7)
#define MUL_5 MUL_4; MUL(4096, Z8, Z9)
#define MUL_6 MUL_5; MUL(5120, Z10, Z11)
#define MUL_7 MUL_6; MUL(6144, Z12, Z13)
#define MUL_8 MUL_7; MUL(7168, Z14, Z15)
#define MUL_9 MUL_8; MUL(8192, Z16, Z17)
#define MUL_10 MUL_9; MUL(9216, Z18, Z19)
#define MUL_11 MUL_10; MUL(10240, Z20, Z21)
#define MUL_12 MUL_11; MUL(11264, Z22, Z23)
#define MUL_13 MUL_12; MUL(12288, Z24, Z25)
#define MUL_14 MUL_13; MUL(13312, Z26, Z27)

#define ADD_1 ADD(0, Z0, Z1)
#define ADD_2 ADD_1; ADD(32, Z2, Z3)
#define ADD_3 ADD_2; ADD(64, Z4, Z5)
#define ADD_4 ADD_3; ADD(96, Z6, Z7)
#define ADD_5 ADD_4; ADD(128, Z8, Z9)
#define ADD_6 ADD_5; ADD(160, Z10, Z11)
#define ADD_7 ADD_6; ADD(192, Z12, Z13)
#define ADD_8 ADD_7; ADD(224, Z14, Z15)
#define ADD_9 ADD_8; ADD(256, Z16, Z17)
#define ADD_10 ADD_9; ADD(288, Z18, Z19)
#define ADD_11 ADD_10; ADD(320, Z20, Z21)
#define ADD_12 ADD_11; ADD(352, Z22, Z23)
#define ADD_13 ADD_12; ADD(384, Z24, Z25)
#define ADD_14 ADD_13; ADD(416, Z26, Z27)

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
	PREFETCHT0 1024(SI); \
	PREFETCHT0 1088(SI); \
	VMOVUPS (SI), Z28; \
	VMOVUPS 64(SI), Z29; \
	MULS; \
	ADDQ $4, AX; \
	ADDQ $128, SI; \
	DECQ CX; \
	JNZ  product; \
	VMOVUPS (R10), Z28; \
	VMOVUPS 64(R10), Z29; \
	MOVQ 32(DI), DX; \
	ADDS; \
	MOVQ 32(DI), R13; \
	MOVQ R8, R14; \
	ADDQ $4, R9; \
	ADDQ $128, R10; \
	TESTQ R11, R11; \
	JNZ  span; \
	VZEROUPPER; \
	RET

// func tile512x1(s *tileArgs)
TEXT tile512x1<>(SB), NOSPLIT, $0-8
	TILE(ZERO_1, MUL_1, ADD_1, NEXT_1)

// func tile512x2(s *tileArgs)
TEXT tile512x2<>(SB), NOSPLIT, $0-8
	TILE(ZERO_2, MUL_2, ADD_2, NEXT_2)

// func tile512x3(s *tileArgs)
TEXT tile512x3<>(SB), NOSPLIT, $0-8
	TILE(ZERO_3, MUL_3, ADD_3, NEXT_3)

// func tile512x4(s *tileArgs)
TEXT tile512x4<>(SB), NOSPLIT, $0-8
	TILE(ZERO_4, MUL_4, ADD_4, NEXT_4)

// func tile512x5(s *tileArgs)
TEXT tile512x5<>(SB), NOSPLIT, $0-8
	TILE(ZERO_5, MUL_5, ADD_5, NEXT_5)

// func tile512x6(s *tileArgs)
TEXT tile512x6<>(SB), NOSPLIT, $0-8
	TILE(ZERO_6, MUL_6, ADD_6, NEXT_6)

// func tile512x7(s *tileArgs)
TEXT tile512x7<>(SB), NOSPLIT, $0-8
	TILE(ZERO_7, MUL_7, ADD_7, NEXT_7)

// func tile512x8(s *tileArgs)
TEXT tile512x8<>(SB), NOSPLIT, $0-8
	TILE(ZERO_8, MUL_8, ADD_8, NEXT_8)

// func tile512x9(s *tileArgs)
TEXT tile512x9<>(SB), NOSPLIT, $0-8
	TILE(ZERO_9, MUL_9, ADD_9, NEXT_9)

// func tile512x10(s *tileArgs)
TEXT tile512x10<>(SB), NOSPLIT, $0-8
	TILE(ZERO_10, MUL_10, ADD_10, NEXT_10)

// func tile512x11(s *tileArgs)
TEXT tile512x11<>(SB), NOSPLIT, $0-8
	TILE(ZERO_11, MUL_11, ADD_11, NEXT_11)

// func tile512x12(s *tileArgs)
TEXT tile512x12<>(SB), NOSPLIT, $0-8
	TILE(ZERO_12, MUL_12, ADD_12, NEXT_12)

// func tile512x13(s *tileArgs)
TEXT tile512x13<>(SB), NOSPLIT, $0-8
	TILE(ZERO_13, MUL_13, ADD_13, NEXT_13)

// func tile512x14(s *tileArgs)
TEXT tile512x14<>(SB), NOSPLIT, $0-8
	TILE(ZERO_14, MUL_14, ADD_14, NEXT_14)

DATA tile512_rows<>+0(SB)/8, $tile512x1<>(SB)
DATA tile512_rows<>+8(SB)/8, $tile512x2<>(SB)
DATA tile512_rows<>+16(SB)/8, $tile512x3<>(SB)
DATA tile512_rows<>+24(SB)/8, $tile512x4<>(SB)
DATA tile512_rows<>+32(SB)/8, $tile512x5<>(SB)
DATA tile512_rows<>+40(SB)/8, $tile512x6<>(SB)
DATA tile512_rows<>+48(SB)/8, $tile512x7<>(SB)
DATA tile512_rows<>+56(SB)/8, $tile512x8<>(SB)
DATA tile512_rows<>+64(SB)/8, $tile512x9<>(SB)
DATA tile512_rows<>+72(SB)/8, $tile512x10<>(SB)
DATA tile512_rows<>+80(SB)/8, $tile512x11<>(SB)
DATA tile512_rows<>+88(SB)/8, $tile512x12<>(SB)
DATA tile512_rows<>+96(SB)/8, $tile512x13<>(SB)
DATA tile512_rows<>+104(SB)/8, $tile512x14<>(SB)
GLOBL tile512_rows<>(SB), RODATA|NOPTR, $112

// tile512 jumps to the function for tiles of the given number of rows.
TEXT ·tile512(SB), NOSPLIT, $0-16
	MOVQ rows+8(FP), AX
	LEAQ tile512_rows<>(SB), BX
	MOVQ -8(BX)(AX*8), AX
	JMP AX
