package main

import (
	"fmt"
	"strings"
)

const dropoutArgs = "y, x *float32, n int, block, seed, stream uint64, limit uint32, keep float32"

// orders returns the block numbers of a group in the order of their words, and the number of
// blocks in a group.
func (s set) orders() string {
	words := s.bytes / 8
	var out strings.Builder
	line, _ := s.coder(&out)
	for i := range words {
		line("DATA order_%s<>+%d(SB)/8, $%d", s.file, 8*i, i/2+i%2*words/2)
	}
	line("GLOBL order_%s<>(SB), RODATA|NOPTR, $%d", s.file, s.bytes)
	for i := range words {
		line("DATA blocks_%s<>+%d(SB)/8, $%d", s.file, 8*i, words)
	}
	line("GLOBL blocks_%s<>(SB), RODATA|NOPTR, $%d", s.file, s.bytes)
	return out.String()
}

// dropout returns the kernel for whole groups of blocks of Philox4x32-10: as many as philox
// computes at once, for two registers of elements. V11 is the limit, V12 the kept fraction.
func (s set) dropout() string {
	words := s.bytes / 8
	var out strings.Builder
	line, code := s.coder(&out)
	line("\tMOVQ y+8(FP), DI\n\tMOVQ x+16(FP), SI\n\tMOVQ n+24(FP), CX\n\tXORQ AX, AX")
	code("VPBROADCASTQ block+32(FP), V10\nVPADDQ [order_" + s.file + "], V10, V10")
	code(`VMOVUPS [philox0], V4
		VMOVUPS [philox1], V5
		VBROADCASTSS limit+56(FP), V11
		VBROADCASTSS keep+60(FP), V12`)
	line("\tJMP check\nloop:")
	s.philox(code)
	for half, draw := range []string{"V1", "V3"} {
		at := fmt.Sprintf("%d(SI)(AX*4)", half*s.bytes)
		to := fmt.Sprintf("%d(DI)(AX*4)", half*s.bytes)
		code("VMOVUPS " + at + ", V8\nVDIVPS V12, V8, V8\nVPMAXUD V11, " + draw + ", V9")
		if s == avx512 {
			code("VPCMPEQD " + draw + ", V9, K2\nVMOVUPS.Z V8, K2, V8")
		} else {
			code("VPCMPEQD " + draw + ", V9, V9\nVANDPS V9, V8, V8")
		}
		code("VMOVUPS V8, " + to)
	}
	code("VPADDQ [blocks_" + s.file + "], V10, V10")
	line("\tADDQ $%d, AX\n\tSUBQ $%d, CX\ncheck:\n\tCMPQ CX, $%d\n\tJGE loop", 4*words, 4*words, 4*words)
	line("\tVZEROUPPER\n\tRET")
	return out.String()
}
