// Package cpufeature helps to select assembly code: it reports the vector instructions that the processor and
// the system provide. It detects them once, when the program starts. It also counts cores.
//
// Two build tags disable instructions, so that a whole test suite can run without them:
// noavx512 leaves AVX2, and purego leaves no assembly at all.
package cpufeature
