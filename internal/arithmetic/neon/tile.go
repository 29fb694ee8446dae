package neon

import (
	"fmt"
	"strings"
)

// A tile product computes up to 6 rows and 16 columns of C, with four registers for each row, so
// that 24 registers of sums hide the latency of multiply-adds (4 cycles, 4 per cycle). v24 to v27
// hold a row of B, and v28 to v31 take turns holding elements of A. A multiply-add selects one of
// these elements by its index, so that no register has to be filled with copies of it. A tile
// narrower than 16 columns is divided into parts of 8, 4, 2 and 1 columns, so that no memory
// beyond it is read.
//
// Registers of all tiles:
//
//	R0   row 0 of A at k; R8 to R12 are the stride of the rows times 1 to 5; R13 is the stride of k
//	R1   row k of B; R14 is the distance to the next
//	R2   the remaining k
//	R3   C, advanced along its rows; R4 is their stride; R7 is C
//	R24  1 if the product is added to C

// block is a part of a tile.
type block struct {
	code
	rows, width int
}

// row loads or stores a row of the block in the registers that begin at first.
func (b *block) row(move string, first int, base string) {
	switch b.width {
	case 1, 2, 4:
		b.v("%sr %s%d, [%s]", move, map[int]string{1: "s", 2: "d", 4: "q"}[b.width], first, base)
	default:
		for i := 0; i < b.width/4; i += 2 {
			b.v("%sp q%d, q%d, %s", move, first+i, first+i+1, at(base, 16*i))
		}
	}
}

// begin sets the sums to C if R24 is 1, and to zero otherwise.
func (b *block) begin(label string) {
	b.line("CBZ R24, zero%s", label)
	b.line("MOVD R7, R3")
	for r := range b.rows {
		b.row("ld", 4*r, "x3")
		if r < b.rows-1 {
			b.line("ADD R4, R3")
		}
	}
	b.line("B begin%s\nzero%[1]s:", label)
	for r := range b.rows {
		for i := range (b.width + 3) / 4 {
			b.v("movi v%d.4s, #0x0", 4*r+i)
		}
	}
	b.label("begin%s", label)
}

// step adds column k of rows first to last of A times row k of B. In a tight tile the rows of A
// are contiguous.
func (b *block) step(first, last int, tight bool) {
	b.row("ld", 24, "x1")
	b.line("ADD R14, R1")
	var from [6]struct{ reg, lane int } // registers that hold elements of A
	for r := first; r <= last; r++ {
		from[r].reg = 28 + r%4
	}
	if tight {
		row, reg := 0, 28
		for i, rows := range []int{4, 2, 1} {
			if last+1-row < rows {
				continue
			}
			b.v("ldr %c%d, %s", "qds"[i], reg, at("x0", 4*row))
			for lane := range rows {
				from[row+lane].reg, from[row+lane].lane = reg, lane
			}
			row, reg = row+rows, reg+1
		}
	}
	for r := first; r <= last; r++ {
		switch x := from[r].reg; {
		case tight:
		case r == 0:
			b.v("ldr s%d, [x0]", x)
		default:
			b.v("ldr s%d, [x0, x%d]", x, 7+r)
		}
		for i := range (b.width + 3) / 4 {
			b.v("fmla v%d.4s, v%d.4s, v%d.s[%d]", 4*r+i, 24+i, from[r].reg, from[r].lane)
		}
	}
	b.line("ADD R13, R0")
}

// loop repeats the step R2 times, at least once. If ahead is set, it prefetches row k+8 of B and
// a line at R15 in each step.
func (b *block) loop(label string, tight, ahead bool) {
	b.label("%s", label)
	if ahead {
		b.v("prfm pldl2keep, [x15]")
		b.line("ADD R17, R15")
		b.v("prfm pldl1keep, [x1, x14, lsl #3]")
	}
	b.step(0, b.rows-1, tight)
	b.line("SUBS $1, R2")
	b.line("BNE %s", label)
}

// end writes the sums to C.
func (b *block) end() {
	b.line("MOVD R7, R3")
	for r := range b.rows {
		b.row("st", 4*r, "x3")
		if r < b.rows-1 {
			b.line("ADD R4, R3")
		}
	}
}

// multiples sets R9 to R12, or those that the tile's rows need, to 2 to 5 times the stride in R8.
func (b *block) multiples() {
	for i, sum := range []string{"R8, R8, R9", "R8, R9, R10", "R9, R9, R11", "R9, R10, R12"} {
		if b.rows > i+2 {
			b.line("ADD %s", sum)
		}
	}
}

// edges writes the code for the parts of a tile with R20 columns, fewer than 16. For each width,
// compute writes the code for the part of B at R6 and of C at R7, which edges advances.
func edges(rows int, compute func(b *block)) string {
	var out strings.Builder
	for bit, width := 3, 8; bit >= 0; bit, width = bit-1, width/2 {
		b := &block{rows: rows, width: width}
		b.line("TBZ $%d, R20, without%d", bit, width)
		compute(b)
		b.line("ADD $%d, R6\n\tADD $%[1]d, R7\nwithout%d:", 4*width, width)
		out.WriteString(b.out.String())
	}
	return out.String()
}

// Sweep returns the functions for package gemm: for each number of rows, a function that adds
// the product of a tile of A and a block of B to C, as described at sweepArgs, and one that
// selects the function.
func Sweep() (text string, err error) {
	defer caught(&err)
	const most = 6
	var out strings.Builder
	fmt.Fprintf(&out, header, "package neon")
	out.WriteString("// Registers are those of tile.go in package neon. In the sweep, R5 is A, R6 is B, R7 is C at a\n" +
		"// panel, R20 is the number of columns left, R21 the distance between panels of B, R25 the depth; R22\n" +
		"// is the address to prefetch, R17 and R23 are its increments; R19 is C of the next call.\n")
	for rows := 1; rows <= most; rows++ {
		b := &block{rows: rows, width: 16}
		fmt.Fprintf(&b.out, "\n// func sweep256x%d(s *sweepArgs)\nTEXT sweep256x%[1]d<>(SB), NOSPLIT, $0-8\n", rows)
		b.line("MOVD s+0(FP), R16")
		for i, r := range []int{5, 8, 13, 6, 14, 21, 7, 4, 24, 25, 20, 22, 17, 23, 19} {
			b.line("MOVD %d(R16), R%d", 8*i, r)
		}
		b.multiples()
		start := func(b *block) { b.line("MOVD R5, R0\n\tMOVD R6, R1\n\tMOVD R25, R2") }
		b.line("CMP $16, R20\n\tBLT edge\npanel:")
		b.begin("16")
		b.line("ADD $64, R7, R3\n\tCMP $16, R20\n\tCSEL EQ, R19, R3, R3")
		for r := range rows {
			b.v("prfm pldl1keep, [x3]")
			if r < rows-1 {
				b.line("ADD R4, R3")
			}
		}
		start(b)
		b.line("MOVD R22, R15")
		tight := rows > 1
		if tight {
			b.line("CMP $4, R8\n\tBEQ tight")
		}
		b.line("CBNZ R17, ahead")
		b.loop("loop", false, false)
		b.line("B keep")
		b.loop("ahead", false, true)
		if tight {
			b.line("B keep\ntight:\n\tCBNZ R17, tightAhead")
			b.loop("tightLoop", true, false)
			b.line("B keep")
			b.loop("tightAhead", true, true)
		}
		b.label("keep")
		b.end()
		b.line("ADD $64, R7\n\tADD R21, R6\n\tADD R23, R22\n\tSUBS $16, R20\n\tBEQ done\n\tCMP $16, R20\n\tBGE panel\nedge:")
		b.out.WriteString(edges(rows, func(b *block) {
			start(b)
			label := fmt.Sprint(b.width)
			b.begin(label)
			b.loop("loop"+label, false, false)
			b.end()
		}))
		b.line("\ndone:\n\tRET")
		out.WriteString(strings.ReplaceAll(b.out.String(), "\t\n", ""))
	}
	out.WriteString("\n// sweep256 jumps to the sweep for a number of rows.\nTEXT ·sweep256(SB), NOSPLIT, $0-16\n")
	w := &writer{}
	var targets []string
	for rows := 1; rows <= most; rows++ {
		targets = append(targets, fmt.Sprintf("sweep256x%d<>(SB)", rows))
	}
	w.dispatch(targets)
	return out.String() + w.out.String(), nil
}

// Tile returns the body of a function for package vector that computes the given number of rows
// of C. argument returns where an argument is stored; the arguments head and tail are the lengths
// of the triangles at the beginning and the end of A.
func Tile(rows int, argument func(name string) string) string {
	b := &block{rows: rows, width: 16}
	for _, m := range []struct {
		name string
		reg  int
	}{{"c", 7}, {"ldc", 4}, {"a", 5}, {"rs", 8}, {"cs", 13}, {"b", 6}, {"ldb", 14}, {"cols", 20}, {"head", 21}, {"k", 25}, {"tail", 22}} {
		b.line("MOVD %s, R%d", argument(m.name), m.reg)
	}
	b.line("MOVBU %s, R24", argument("accumulate"))
	for _, r := range []int{4, 8, 13, 14} {
		b.line("LSL $2, R%d", r)
	}
	b.multiples()
	compute := func(b *block) {
		b.line("MOVD R5, R0\n\tMOVD R6, R1\n\tMOVD R25, R2")
		label := fmt.Sprint(b.width)
		b.begin(label)
		if rows > 1 {
			b.line("CBZ R21, middle%s", label)
			for l := range rows {
				b.step(0, l, false)
			}
			b.label("middle%s", label)
		}
		b.line("CBZ R2, last%s", label)
		b.loop("loop"+label, false, false)
		b.label("last%s", label)
		if rows > 1 {
			b.line("CBZ R22, keep%s", label)
			for l := range rows {
				b.step(l, rows-1, false)
			}
			b.label("keep%s", label)
		}
		b.end()
	}
	b.line("CMP $16, R20\n\tBLT edge")
	compute(b)
	b.line("RET\nedge:")
	b.out.WriteString(edges(rows, compute))
	b.line("RET")
	return b.out.String()
}
