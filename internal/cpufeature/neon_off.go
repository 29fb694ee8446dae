//go:build !arm64 || purego

package cpufeature

// NEON is set where NEON may be used: every arm64 processor that Go runs on has it.
const NEON = false
