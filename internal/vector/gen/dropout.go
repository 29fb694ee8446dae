package main

import (
	"fmt"
	"strings"
)

const dropoutArgs = "y, x *float32, n int, block, seed, stream uint64, limit uint32, keep float32"

// dropout returns the kernel of whole groups of blocks of Philox4x32-10: as many as
// a register has words of 64 bits. The four words of a block are the lower halves of
// V0 to V3, where a multiplication looks; what is in the upper halves does not
// matter. V4 and V5 are the multipliers, V6 and V7 the keys of the round, V10 the
// numbers of the blocks, V11 the limit, V12 what is kept.
//
// Two registers of elements come out of a group. They are in order because the
// numbers of the blocks are not: word 2·l+k has block l + k·(words/2), l being the
// number of the lane of 128 bits.
func (s set) dropout() string {
	words := s.bytes / 8
	reg := "Z"
	if s == avx2 {
		reg = "Y"
	}
	var out strings.Builder
	line := func(text string, args ...any) { fmt.Fprintf(&out, text+"\n", args...) }
	code := func(text string) {
		for l := range strings.Lines(text) {
			if l = strings.TrimSpace(l); l != "" {
				line("\t%s", constantName.ReplaceAllString(vectorName.ReplaceAllString(l, reg+"$1"), "${1}_"+s.file+"<>(SB)"))
			}
		}
	}
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
	code(`VPBROADCASTQ seed+32(FP), V6
		VPSRLQ $32, V6, V7
		VPBROADCASTQ stream+40(FP), V2
		VPSRLQ $32, V2, V3
		VMOVUPS V10, V0
		VPSRLQ $32, V10, V1`)
	xor := "VPXOR"
	if s == avx512 {
		xor = "VPXORD"
	}
	for round := range 10 {
		if round > 0 {
			code("VPADDD [weyl0], V6, V6\nVPADDD [weyl1], V7, V7")
		}
		code(strings.ReplaceAll(`VPMULUDQ V4, V0, V8
			VPMULUDQ V5, V2, V9
			VPSRLQ $32, V9, V0
			XOR V1, V0, V0
			XOR V6, V0, V0
			VPSRLQ $32, V8, V2
			XOR V3, V2, V2
			XOR V7, V2, V2
			VMOVUPS V9, V1
			VMOVUPS V8, V3`, "XOR", xor))
	}
	// Words 0 and 1 of each block, then 2 and 3, side by side.
	code(`VPSLLQ $32, V0, V0
		VPSRLQ $32, V0, V0
		VPSLLQ $32, V1, V1
		VPADDQ V1, V0, V0
		VPSLLQ $32, V2, V2
		VPSRLQ $32, V2, V2
		VPSLLQ $32, V3, V3
		VPADDQ V3, V2, V2
		VPUNPCKLQDQ V2, V0, V1
		VPUNPCKHQDQ V2, V0, V3`)
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
