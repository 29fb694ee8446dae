//go:build !purego

package cpufeature

// cpuid executes CPUID with the given leaf and subleaf.
func cpuid(leaf, subleaf uint32) (eax, ebx, ecx, edx uint32)

// xgetbv returns the lower half of extended control register 0, which says what registers the
// system saves when it switches threads.
func xgetbv() uint32

// The bits, from Intel's manual (volume 2A, CPUID; volume 1, section 14.3 for AVX2, 15.2 for
// AVX-512).
const (
	leaf1FMA     = 1 << 12 // of ecx
	leaf1OSXSAVE = 1 << 27
	leaf1AVX     = 1 << 28

	leaf7AVX2     = 1 << 5 // of ebx
	leaf7AVX512F  = 1 << 16
	leaf7AVX512DQ = 1 << 17
	leaf7AVX512BW = 1 << 30
	leaf7AVX512VL = 1 << 31

	saveYMM = 1<<1 | 1<<2
	saveZMM = saveYMM | 1<<5 | 1<<6 | 1<<7
)

func detect() (avx2fma, avx512 bool) {
	last, _, _, _ := cpuid(0, 0)
	if last < 7 {
		return false, false
	}
	all := func(have uint32, want uint32) bool { return have&want == want }
	_, _, c1, _ := cpuid(1, 0)
	if !all(c1, leaf1FMA|leaf1OSXSAVE|leaf1AVX) {
		return false, false
	}
	_, b7, _, _ := cpuid(7, 0)
	saved := xgetbv()
	avx2fma = all(b7, leaf7AVX2) && all(saved, saveYMM)
	avx512 = avx2fma && allowAVX512 && all(saved, saveZMM) &&
		all(b7, leaf7AVX512F|leaf7AVX512DQ|leaf7AVX512BW|leaf7AVX512VL)
	return avx2fma, avx512
}
