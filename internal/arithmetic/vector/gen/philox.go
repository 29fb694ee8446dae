package main

import "fmt"

// philox writes the ten rounds of Philox4x32-10 over as many blocks as a register has words of
// 64 bits. The four words of a block are the lower halves of V0 to V3, which a multiplication
// reads; the upper halves are ignored. V4 and V5 are the multipliers, V6 and V7 the keys of the
// round, V10 the numbers of the blocks. A product is used directly as the next word: V1 and V3
// alternate with V9 and V8.
//
// The result is two registers of draws, V1 and V3. Permuted block numbers put them in order:
// word 2·l+k of V10 is block l of register k, where l is the number of the lane of 128 bits.
func (t *text) philox() {
	t.code(`VPBROADCASTQ seed+40(FP), V6
		VPSRLQ $32, V6, V7
		VPBROADCASTQ stream+48(FP), V2
		VPSRLQ $32, V2, V3
		VMOVUPS V10, V0
		VPSRLQ $32, V10, V1`)
	c1, c3, p, q := "V1", "V3", "V8", "V9"
	for round := range 10 {
		if round > 0 {
			t.code("VPADDD [weyl0], V6, V6\nVPADDD [weyl1], V7, V7")
		}
		t.code(fmt.Sprintf("VPMULUDQ V4, V0, %s\nVPMULUDQ V5, V2, %s\nVPSRLQ $32, %s, V0\nVPSRLQ $32, %s, V2", p, q, q, p))
		t.code(t.set.xor3(c1, "V6", "V0"))
		t.code(t.set.xor3(c3, "V7", "V2"))
		c1, c3, p, q = q, p, c3, c1
	}
	// Words 0 and 1 of each block, then 2 and 3, next to each other.
	t.code(`VPSLLQ $32, V0, V0
		VPSRLQ $32, V0, V0
		VPSLLQ $32, V1, V1
		VPADDQ V1, V0, V0
		VPSLLQ $32, V2, V2
		VPSRLQ $32, V2, V2
		VPSLLQ $32, V3, V3
		VPADDQ V3, V2, V2
		VPUNPCKLQDQ V2, V0, V1
		VPUNPCKHQDQ V2, V0, V3`)
}

// xor3 is z ^= x ^ y.
func (s set) xor3(x, y, z string) string {
	if s == avx512 {
		return fmt.Sprintf("VPTERNLOGD $0x96, %s, %s, %s", x, y, z)
	}
	return fmt.Sprintf("VPXOR %s, %s, %s\nVPXOR %s, %s, %s", x, z, z, y, z, z)
}
