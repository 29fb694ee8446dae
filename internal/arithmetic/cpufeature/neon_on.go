//go:build arm64 && !purego

package cpufeature

// NEON reports whether NEON may be used: every arm64 processor that Go supports has it.
const NEON = true
