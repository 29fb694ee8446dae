// Package neon generates assembly for arm64: it translates AVX2 assembly in Go's syntax to
// NEON, so that both have one source, and encodes instructions that Go's assembler lacks.
package neon
