package main

import "fmt"

const dropoutArgs = "y, x *float32, n int, block, seed, stream uint64, limit uint32, keep float32"

// orders returns the data for two registers: the block numbers of a group in the order of their
// words, and the number of blocks in a group.
func (s set) orders() string {
	words := s.bytes / 8
	t := &text{set: s}
	for i := range words {
		t.line("DATA order_%s<>+%d(SB)/8, $%d", s.file, 8*i, i/2+i%2*words/2)
	}
	t.line("GLOBL order_%s<>(SB), RODATA|NOPTR, $%d", s.file, s.bytes)
	for i := range words {
		t.line("DATA blocks_%s<>+%d(SB)/8, $%d", s.file, 8*i, words)
	}
	t.line("GLOBL blocks_%s<>(SB), RODATA|NOPTR, $%d", s.file, s.bytes)
	return t.out.String()
}

// dropout returns the kernel for whole groups of blocks of Philox4x32-10: as many as philox
// computes at once, for two registers of elements. V11 is the limit, V12 the kept fraction.
func (s set) dropout() string {
	words := s.bytes / 8
	t := &text{set: s}
	t.line("\tMOVQ y+8(FP), DI\n\tMOVQ x+16(FP), SI\n\tMOVQ n+24(FP), CX\n\tXORQ AX, AX")
	t.code("VPBROADCASTQ block+32(FP), V10\nVPADDQ [order_" + s.file + "], V10, V10")
	t.code(`VMOVUPS [philox0], V4
		VMOVUPS [philox1], V5
		VBROADCASTSS limit+56(FP), V11
		VBROADCASTSS keep+60(FP), V12`)
	t.line("\tJMP check\nloop:")
	t.philox()
	for half, draw := range []string{"V1", "V3"} {
		at := fmt.Sprintf("%d(SI)(AX*4)", half*s.bytes)
		to := fmt.Sprintf("%d(DI)(AX*4)", half*s.bytes)
		t.code("VMOVUPS " + at + ", V8\nVDIVPS V12, V8, V8\nVPMAXUD V11, " + draw + ", V9")
		if s == avx512 {
			t.code("VPCMPEQD " + draw + ", V9, K2\nVMOVUPS.Z V8, K2, V8")
		} else {
			t.code("VPCMPEQD " + draw + ", V9, V9\nVANDPS V9, V8, V8")
		}
		t.code("VMOVUPS V8, " + to)
	}
	t.code("VPADDQ [blocks_" + s.file + "], V10, V10")
	t.line("\tADDQ $%d, AX\n\tSUBQ $%d, CX\ncheck:\n\tCMPQ CX, $%d\n\tJGE loop", 4*words, 4*words, 4*words)
	t.line("\tVZEROUPPER\n\tRET")
	return t.out.String()
}
