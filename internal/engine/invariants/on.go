//go:build invariants

package invariants

// Enabled reports whether the build contains the expensive checks.
const Enabled = true
