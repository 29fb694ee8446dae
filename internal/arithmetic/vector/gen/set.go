package main

import (
	"fmt"
	"strconv"
	"strings"
)

// set is an instruction set.
type set struct {
	file     string
	register string // the first letter of the full registers
	bytes    int    // per register
	floats   int    // per register
	halves   int    // registers per eight float64
}

var (
	avx512 = set{file: "avx512", register: "Z", bytes: 64, floats: 16, halves: 1}
	avx2   = set{file: "avx2", register: "Y", bytes: 32, floats: 8, halves: 2}
)

// text is assembly for a set.
type text struct {
	set set
	out strings.Builder
}

func (t *text) line(format string, args ...any) { fmt.Fprintf(&t.out, format+"\n", args...) }

// code writes instructions, with the registers and the constants of the set.
func (t *text) code(instructions string) {
	for l := range strings.Lines(instructions) {
		if l = strings.TrimSpace(l); l != "" {
			t.line("\t%s", withConstants(vectorName.ReplaceAllString(l, t.set.register+"$1")))
		}
	}
}

func withConstants(line string) string { return constantName.ReplaceAllString(line, "$1<>(SB)") }

// constants returns the data of the constants, each as wide as a register.
func (s set) constants() string {
	t := &text{set: s}
	for _, c := range constants {
		for i := range s.bytes / 8 {
			t.line("DATA %s<>+%d(SB)/8, $0x%08x%08x", c.name, 8*i, c.bits, c.bits)
		}
		t.line("GLOBL %s<>(SB), RODATA|NOPTR, $%d", c.name, s.bytes)
	}
	return t.out.String()
}

// tables returns the data from which AVX2 reads its masks: eight words of ones, then eight of
// zeros.
func (s set) tables() string {
	t := &text{set: s}
	for i := range 8 {
		value := "0xffffffffffffffff"
		if i >= 4 {
			value = "0"
		}
		t.line("DATA tail<>+%d(SB)/8, $%s", 8*i, value)
	}
	t.line("GLOBL tail<>(SB), RODATA|NOPTR, $64")
	return t.out.String()
}

// masks computes the mask of the CX remaining elements, in K1 or Y15.
func (w *writer) masks() {
	if w.set == avx512 {
		w.line("\tMOVL $-1, R11")
		w.line("\tBZHIL CX, R11, R11")
		w.line("\tKMOVW R11, K1")
		return
	}
	w.line("\tLEAQ tail<>+32(SB), R11")
	w.line("\tSHLQ $2, CX")
	w.line("\tSUBQ CX, R11")
	w.line("\tVMOVUPS (R11), Y15")
}

// partial are the instructions that differ at the end of a slice: for a full register, and for the
// elements of the mask in AVX-512 and in AVX2.
var partial = map[string]struct{ full, avx512, avx2 string }{
	"load":  {"VMOVUPS (%[1]s)(AX*4), %[2]s", "VMOVUPS.Z (%[1]s)(AX*4), K1, %[2]s", "VMASKMOVPS (%[1]s)(AX*4), Y15, %[2]s"},
	"store": {"VMOVUPS %[1]s, (%[2]s)(AX*4)", "VMOVUPS %[1]s, K1, (%[2]s)(AX*4)", "VMASKMOVPS %[1]s, Y15, (%[2]s)(AX*4)"},
	"mask":  {"", "VMOVUPS.Z %[1]s, K1, %[1]s", "VANDPS Y15, %[1]s, %[1]s"},
	"fill":  {"", "VBLENDMPS %[1]s, %[2]s, K1, %[1]s", "VBLENDVPS Y15, %[1]s, %[2]s, %[1]s"},
}

// partial writes an instruction of partial.
func (w *writer) partial(name string, operands ...any) {
	form := partial[name]
	line := form.full
	switch {
	case w.tail && w.set == avx512:
		line = form.avx512
	case w.tail:
		line = form.avx2
	}
	if line != "" {
		w.line("\t"+line, operands...)
	}
}

// keep sets the register to to from's value if comparison i of a and b is true, and to 0 otherwise.
func (w *writer) keep(from, a, i, b, to string) {
	if w.set == avx512 {
		w.line("\tVCMPPS $%s, %s, %s, K2", i, b, a)
		w.line("\tVMOVUPS.Z %s, K2, %s", from, to)
		return
	}
	w.line("\tVCMPPS $%s, %s, %s, Y14", i, b, a)
	w.line("\tVANDPS Y14, %s, %s", from, to)
}

// double returns the register of a half of Dn: AVX2 keeps the upper half in the register eight
// places further.
func (w *writer) double(name string, half int) string {
	n, _ := strconv.Atoi(name[1:])
	if w.set == avx512 {
		return fmt.Sprintf("Z%d", n)
	}
	return fmt.Sprintf("Y%d", n+8*half)
}

func (w *writer) widen(v, d string) {
	n := v[1:]
	if w.set == avx512 {
		w.line("\tVCVTPS2PD Y%s, %s", n, w.double(d, 0))
		return
	}
	w.line("\tVCVTPS2PD X%s, %s", n, w.double(d, 0))
	w.line("\tVEXTRACTF128 $1, Y%s, X14", n)
	w.line("\tVCVTPS2PD X14, %s", w.double(d, 1))
}

// count widens and adds a full register, in AVX-512 its halves one after the other.
func (w *writer) count(v, to, with string) {
	w.widen(v, with)
	w.plain(fmt.Sprintf("VADDPD %s, %s, %s", with, to, to))
	if w.set == avx512 {
		n := v[1:]
		w.line("\tVEXTRACTF64X4 $1, Z%s, Y%s", n, n)
		w.widen(v, with)
		w.plain(fmt.Sprintf("VADDPD %s, %s, %s", with, to, to))
	}
}

// halve computes the larger of the halves of a full register of AVX-512, in its lower half. In AVX2
// it writes nothing.
func (w *writer) halve(v, with string) {
	if w.set == avx512 {
		w.line("\tVEXTRACTF64X4 $1, Z%s, Y%s", v[1:], with[1:])
		w.line("\tVMAXPS Y%s, Y%s, Y%s", with[1:], v[1:], v[1:])
	}
}

// reduce adds the eight numbers of Dn in halves and stores the sum as a result.
func (w *writer) reduce(n int, result parameter) {
	if w.set == avx512 {
		w.line("\tVEXTRACTF64X4 $1, Z%d, Y14", n)
		w.line("\tVADDPD Y14, Y%d, Y%d", n, n)
	} else {
		w.line("\tVADDPD Y%d, Y%d, Y%d", n+8, n, n)
	}
	w.line("\tVEXTRACTF128 $1, Y%d, X14", n)
	w.line("\tVADDPD X14, X%d, X%d", n, n)
	w.line("\tVPERMILPD $1, X%d, X14", n)
	w.line("\tVADDSD X14, X%d, X%d", n, n)
	w.line("\tVMOVSD X%d, %s+%d(FP)", n, result.name, result.offset)
}
