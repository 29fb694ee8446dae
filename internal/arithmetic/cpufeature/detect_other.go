//go:build !amd64 || purego

package cpufeature

func detect() (avx2fma, avx512 bool) { return false, false }
