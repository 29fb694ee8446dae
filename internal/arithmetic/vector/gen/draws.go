package main

const drawsArgs = "dst *uint32, groups int, block, step, seed, stream uint64"

// draws returns the kernel for groups of draws, of two registers each. Four blocks are
// consecutive, and the next four begin step blocks after the first of them: the blocks of a
// register in AVX-512, of a group in AVX2.
func (s set) draws() string {
	t := &text{set: s}
	t.line("\tMOVQ dst+8(FP), DI\n\tMOVQ groups+16(FP), CX")
	t.code("VPBROADCASTQ block+24(FP), V10\nVPADDQ [order_" + s.file + "], V10, V10")
	t.code(`VMOVUPS [philox0], V4
		VMOVUPS [philox1], V5
		VPBROADCASTQ step+32(FP), V11`)
	if s == avx512 {
		t.line("\tMOVQ step+32(FP), AX\n\tSUBQ $4, AX\n\tMOVL $0xaa, R11\n\tKMOVW R11, K1")
		t.code(`VPBROADCASTQ AX, V12
			VPADDQ V12, V10, K1, V10
			VPADDQ V11, V11, V11`)
	}
	t.line("loop:")
	t.philox()
	t.line("\tVMOVUPS %[1]s1, (DI)\n\tVMOVUPS %[1]s3, %[2]d(DI)", s.register, s.bytes)
	t.code("VPADDQ V11, V10, V10")
	t.line("\tADDQ $%d, DI\n\tDECQ CX\n\tJNZ loop\n\tVZEROUPPER\n\tRET", 2*s.bytes)
	return t.out.String()
}
