package main

import (
	"fmt"
	"strconv"
	"strings"
)

// set is an instruction set.
type set struct {
	file   string
	bytes  int // per register
	floats int // per register
	halves int // registers per eight float64
}

var (
	avx512 = set{file: "avx512", bytes: 64, floats: 16, halves: 1}
	avx2   = set{file: "avx2", bytes: 32, floats: 8, halves: 2}
)

// tables returns the data from which AVX2 reads its masks: eight words of ones, then eight of
// zeros.
func (s set) tables() string {
	var out strings.Builder
	for i := range 8 {
		value := "0xffffffffffffffff"
		if i >= 4 {
			value = "0"
		}
		fmt.Fprintf(&out, "DATA tail<>+%d(SB)/8, $%s\n", 8*i, value)
	}
	out.WriteString("GLOBL tail<>(SB), RODATA|NOPTR, $64\n")
	return out.String()
}

// masks computes the mask of the CX remaining elements, in K1 or Y15.
func (w *writer) masks() {
	if w.name512() {
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

func (w *writer) name512() bool { return w.set == avx512 }

func (w *writer) load(pointer, v string) {
	switch {
	case !w.tail:
		w.line("\tVMOVUPS (%s)(AX*4), %s", pointer, v)
	case w.name512():
		w.line("\tVMOVUPS.Z (%s)(AX*4), K1, %s", pointer, v)
	default:
		w.line("\tVMASKMOVPS (%s)(AX*4), Y15, %s", pointer, v)
	}
}

func (w *writer) store(v, pointer string) {
	switch {
	case !w.tail:
		w.line("\tVMOVUPS %s, (%s)(AX*4)", v, pointer)
	case w.name512():
		w.line("\tVMOVUPS %s, K1, (%s)(AX*4)", v, pointer)
	default:
		w.line("\tVMASKMOVPS %s, Y15, (%s)(AX*4)", v, pointer)
	}
}

// keep sets to to from if comparison i of a and b is true, and to 0 otherwise.
func (w *writer) keep(from, a, i, b, to string) {
	if w.name512() {
		w.line("\tVCMPPS $%s, %s, %s, K2", i, b, a)
		w.line("\tVMOVUPS.Z %s, K2, %s", from, to)
		return
	}
	w.line("\tVCMPPS $%s, %s, %s, Y14", i, b, a)
	w.line("\tVANDPS Y14, %s, %s", from, to)
}

func (w *writer) mask(v string) {
	switch {
	case !w.tail:
	case w.name512():
		w.line("\tVMOVUPS.Z %s, K1, %s", v, v)
	default:
		w.line("\tVANDPS Y15, %s, %s", v, v)
	}
}

func (w *writer) fill(v, with string) {
	switch {
	case !w.tail:
	case w.name512():
		w.line("\tVBLENDMPS %s, %s, K1, %s", v, with, v)
	default:
		w.line("\tVBLENDVPS Y15, %s, %s, %s", v, with, v)
	}
}

// double returns the register of a half of Dn: AVX2 keeps the upper half in the register eight
// places further.
func (w *writer) double(name string, half int) string {
	n, _ := strconv.Atoi(name[1:])
	if w.name512() {
		return fmt.Sprintf("Z%d", n)
	}
	return fmt.Sprintf("Y%d", n+8*half)
}

func (w *writer) widen(v, d string) {
	n := v[1:]
	if w.name512() {
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
	if w.name512() {
		n := v[1:]
		w.line("\tVEXTRACTF64X4 $1, Z%s, Y%s", n, n)
		w.widen(v, with)
		w.plain(fmt.Sprintf("VADDPD %s, %s, %s", with, to, to))
	}
}

// halve computes the larger of the halves of a full register, in its lower half.
func (w *writer) halve(v, with string) {
	if w.name512() {
		w.line("\tVEXTRACTF64X4 $1, Z%s, Y%s", v[1:], with[1:])
		w.line("\tVMAXPS Y%s, Y%s, Y%s", with[1:], v[1:], v[1:])
	}
}

// reduce adds the eight numbers of Dn in halves.
func (w *writer) reduce(n int, result parameter) {
	if w.name512() {
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
