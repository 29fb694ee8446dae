package main

import (
	"fmt"
	"strings"
)

const dropoutArgs = "y, x *float32, n int, block, seed, stream uint64, limit uint32, keep float32"

// dropout returns the kernel of whole groups of blocks of Philox4x32-10: as many as
// philox takes, from which two registers of elements come. V11 is the limit, V12 what
// is kept.
func (s set) dropout() string {
	words := s.bytes / 8
	var out strings.Builder
	line, code := s.coder(&out)
	line("")
	for i := range words {
		line("DATA order_%s<>+%d(SB)/8, $%d", s.file, 8*i, i/2+i%2*words/2)
	}
	line("GLOBL order_%s<>(SB), RODATA|NOPTR, $%d", s.file, s.bytes)
	for i := range words {
		line("DATA blocks_%s<>+%d(SB)/8, $%d", s.file, 8*i, words)
	}
	line("GLOBL blocks_%s<>(SB), RODATA|NOPTR, $%d", s.file, s.bytes)
	line("")
	line("// dropout: whole groups of %d elements; DI and SI are y and x, CX counts elements.", 4*words)
	line("TEXT ·dropout%s(SB), NOSPLIT, $0-56", s.suffix)
	line("\tMOVQ y+0(FP), DI\n\tMOVQ x+8(FP), SI\n\tMOVQ n+16(FP), CX\n\tXORQ AX, AX")
	code(`VPBROADCASTQ block+24(FP), V10
		VPADDQ [order], V10, V10
		VMOVUPS [philox0], V4
		VMOVUPS [philox1], V5
		VBROADCASTSS limit+48(FP), V11
		VBROADCASTSS keep+52(FP), V12`)
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
	code("VPADDQ [blocks], V10, V10")
	line("\tADDQ $%d, AX\n\tSUBQ $%d, CX\ncheck:\n\tCMPQ CX, $%d\n\tJGE loop", 4*words, 4*words, 4*words)
	line("\tVZEROUPPER\n\tRET")
	return out.String()
}
