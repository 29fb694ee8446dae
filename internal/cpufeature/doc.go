// Package cpufeature is for choosing assembly: it reports the vector instructions that the
// processor and the system offer. It asks once, when the program starts. It also counts cores.
//
// Two build tags take instructions away, so that a whole test suite can run
// without them: noavx512 leaves AVX2, purego leaves no assembly at all.
package cpufeature
