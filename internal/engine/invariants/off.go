//go:build !invariants

package invariants

// Enabled reports whether the build carries the expensive checks.
const Enabled = false
