//go:build !arm64 || purego

package cpufeature

// NEON reports whether NEON may be used. This build is for another architecture, or without
// assembly.
const NEON = false
