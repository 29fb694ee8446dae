// Package neon is for generating assembly for arm64: it turns AVX2 assembly of Go into
// NEON, so that both have one source, and encodes instructions that Go's assembler lacks.
package neon
