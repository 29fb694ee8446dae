package main

import (
	"fmt"
	"slices"
)

// The product of tiles. A call adds the products of rows of A, whose elements are rs apart
// along rows and cs along columns, and of columns of B, whose rows are ldb apart, to a tile of
// C.
//
// Registers: DI is C, SI and DX are the first and the fifth row of A, R8 is B, R9, R10 and R11
// are ldc, rs and ldb in bytes, R12 is 3·rs, R13 is cs in bytes, CX counts k. The tile of C is
// in the first 2·rows registers, two per row; the next two hold a row of B, and the next one
// an element of A.
const productArgs = "c *float32, ldc int, a *float32, rs, cs int, b *float32, ldb, cols, head, k, tail int, accumulate bool"

// argument returns the location of an argument of productArgs.
func argument(name string) string {
	params, _ := layout(productArgs, 8)
	i := slices.IndexFunc(params, func(p parameter) bool { return p.name == name })
	return fmt.Sprintf("%s+%d(FP)", name, params[i].offset)
}

// tileRows returns the number of rows of a tile: as many as fit in the registers.
func (s set) tileRows() int {
	if s == avx512 {
		return 8
	}
	return 4
}

type tile struct {
	text
	rows int
}

func (t *tile) reg(n int) string { return fmt.Sprint(t.set.register, n) }

// load and store move one of the two registers of a row, under its mask.
func (t *tile) load(pointer string, half int, to string) {
	if t.set == avx512 {
		t.line("\tVMOVUPS.Z %d(%s), K%d, %s", half*t.set.bytes, pointer, half+1, to)
	} else {
		t.line("\tVMASKMOVPS %d(%s), Y%d, %s", half*t.set.bytes, pointer, 14+half, to)
	}
}

func (t *tile) store(from, pointer string, half int) {
	if t.set == avx512 {
		t.line("\tVMOVUPS %s, K%d, %d(%s)", from, half+1, half*t.set.bytes, pointer)
	} else {
		t.line("\tVMASKMOVPS %s, Y%d, %d(%s)", from, 14+half, half*t.set.bytes, pointer)
	}
}

// element returns the location of row r of A in this column.
func element(r int) string {
	base := []string{"SI", "DX"}[r/4]
	return []string{"(" + base + ")", "(" + base + ")(R10*1)", "(" + base + ")(R10*2)", "(" + base + ")(R12*1)"}[r%4]
}

// step adds one column of A, in rows first to last, times one row of B.
func (t *tile) step(first, last int) {
	b := 2 * t.rows
	t.load("R8", 0, t.reg(b))
	t.load("R8", 1, t.reg(b+1))
	for r := first; r <= last; r++ {
		t.line("\tVBROADCASTSS %s, %s", element(r), t.reg(b+2))
		t.line("\tVFMADD231PS %s, %s, %s", t.reg(b), t.reg(b+2), t.reg(2*r))
		t.line("\tVFMADD231PS %s, %s, %s", t.reg(b+1), t.reg(b+2), t.reg(2*r+1))
	}
	t.line("\tADDQ R13, SI")
	t.line("\tADDQ R13, DX")
	t.line("\tADDQ R11, R8")
}

func (s set) tile(rows int) string {
	t := &tile{text: text{set: s}, rows: rows}
	at := argument
	for _, m := range [][2]string{{"c", "DI"}, {"ldc", "R9"}, {"a", "SI"}, {"rs", "R10"}, {"cs", "R13"}, {"b", "R8"}, {"ldb", "R11"}, {"cols", "AX"}} {
		t.line("\tMOVQ %s, %s", at(m[0]), m[1])
	}
	for _, r := range []string{"R9", "R10", "R13", "R11"} {
		t.line("\tSHLQ $2, %s", r)
	}
	t.line("\tLEAQ (R10)(R10*2), R12")
	t.line("\tLEAQ (SI)(R10*4), DX")
	t.colMasks()
	t.line("\tMOVBLZX %s, BX", at("accumulate"))
	t.line("\tTESTQ BX, BX")
	t.line("\tJEQ fresh")
	t.line("\tMOVQ DI, BX")
	for r := range rows {
		t.load("BX", 0, t.reg(2*r))
		t.load("BX", 1, t.reg(2*r+1))
		if r < rows-1 {
			t.line("\tADDQ R9, BX")
		}
	}
	t.line("\tJMP begin")
	t.line("fresh:")
	for i := range 2 * rows {
		t.line("\tVXORPS %s, %s, %s", t.reg(i), t.reg(i), t.reg(i))
	}
	t.line("begin:")
	if rows > 1 {
		t.line("\tMOVQ %s, BX", at("head"))
		t.line("\tTESTQ BX, BX")
		t.line("\tJEQ middle")
		for l := range rows {
			t.step(0, l)
		}
		t.line("middle:")
	}
	t.line("\tMOVQ %s, CX", at("k"))
	t.line("\tTESTQ CX, CX")
	t.line("\tJEQ last")
	t.line("loop:")
	t.step(0, rows-1)
	t.line("\tDECQ CX")
	t.line("\tJNE loop")
	t.line("last:")
	if rows > 1 {
		t.line("\tMOVQ %s, BX", at("tail"))
		t.line("\tTESTQ BX, BX")
		t.line("\tJEQ done")
		for l := range rows {
			t.step(l, rows-1)
		}
		t.line("done:")
	}
	for r := range rows {
		t.store(t.reg(2*r), "DI", 0)
		t.store(t.reg(2*r+1), "DI", 1)
		if r < rows-1 {
			t.line("\tADDQ R9, DI")
		}
	}
	t.line("\tVZEROUPPER")
	t.line("\tRET")
	return t.out.String()
}

// colMasks computes the masks of AX columns for both registers of a row.
func (t *tile) colMasks() {
	if t.set == avx512 {
		t.line("\tMOVL $-1, CX")
		t.line("\tBZHIL AX, CX, CX") // 32 and more give all ones
		t.line("\tKMOVW CX, K1")
		t.line("\tSHRL $16, CX")
		t.line("\tKMOVW CX, K2")
		return
	}
	t.line("\tMOVQ $8, CX")
	t.line("\tCMPQ AX, CX")
	t.line("\tCMOVQLT AX, CX") // columns of the first register
	t.line("\tSUBQ CX, AX")
	for half, count := range []string{"CX", "AX"} {
		t.line("\tSHLQ $2, %s", count)
		t.line("\tLEAQ tail<>+32(SB), BX")
		t.line("\tSUBQ %s, BX", count)
		t.line("\tVMOVUPS (BX), Y%d", 14+half)
	}
}

// transpose returns the kernel for whole blocks of 8×8, which both sets use: it loads eight
// rows, exchanges in three rounds (pairs, pairs of pairs, halves), and stores eight rows.
func transpose() string {
	t := &text{set: avx2}
	t.line("")
	t.line("// transpose: blocks of 8×8, down the rows of src and then to its next eight columns.")
	t.line("// DI and SI are dst and src, R8 and R9 their rows' distances in bytes, R10 and R11 three times that.")
	t.line("TEXT ·transpose8(SB), NOSPLIT, $0-48")
	t.line("\tMOVQ dst+0(FP), DI\n\tMOVQ ldd+8(FP), R8\n\tMOVQ src+16(FP), SI\n\tMOVQ lds+24(FP), R9")
	t.line("\tMOVQ cols+40(FP), DX\n\tSHLQ $2, R8\n\tSHLQ $2, R9\n\tLEAQ (R8)(R8*2), R10\n\tLEAQ (R9)(R9*2), R11")
	t.line("column:")
	t.line("\tMOVQ rows+32(FP), CX\n\tMOVQ SI, AX\n\tMOVQ DI, BX")
	t.line("block:")
	row := func(base, stride, triple string, i int) string {
		return []string{"(" + base + ")", "(" + base + ")(" + stride + "*1)", "(" + base + ")(" + stride + "*2)", "(" + base + ")(" + triple + "*1)"}[i%4]
	}
	for i := range 8 {
		if i == 4 {
			t.line("\tLEAQ (AX)(R9*4), AX")
		}
		t.line("\tVMOVUPS %s, Y%d", row("AX", "R9", "R11", i), i)
	}
	t.line("\tLEAQ (AX)(R9*4), AX")
	for i := 0; i < 8; i += 2 {
		t.line("\tVUNPCKLPS Y%d, Y%d, Y%d", i+1, i, 8+i)
		t.line("\tVUNPCKHPS Y%d, Y%d, Y%d", i+1, i, 9+i)
	}
	for _, i := range []int{0, 4} {
		for j := range 2 {
			t.line("\tVSHUFPS $0x44, Y%d, Y%d, Y%d", 10+i+j, 8+i+j, i+2*j)
			t.line("\tVSHUFPS $0xee, Y%d, Y%d, Y%d", 10+i+j, 8+i+j, i+2*j+1)
		}
	}
	for i := range 4 {
		t.line("\tVPERM2F128 $0x20, Y%d, Y%d, Y%d", i+4, i, 8+i)
		t.line("\tVPERM2F128 $0x31, Y%d, Y%d, Y%d", i+4, i, 12+i)
	}
	t.line("\tMOVQ BX, R12")
	for i := range 8 {
		if i == 4 {
			t.line("\tLEAQ (R12)(R8*4), R12")
		}
		t.line("\tVMOVUPS Y%d, %s", 8+i, row("R12", "R8", "R10", i))
	}
	t.line("\tADDQ $32, BX\n\tSUBQ $8, CX\n\tJNE block")
	t.line("\tADDQ $32, SI\n\tLEAQ (DI)(R8*8), DI\n\tSUBQ $8, DX\n\tJNE column")
	t.line("\tVZEROUPPER\n\tRET")
	return t.out.String()
}
