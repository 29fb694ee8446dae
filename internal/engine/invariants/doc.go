// Package invariants is for checks that cost too much for every build: -tags invariants
// switches them on.
//
// Build with `-tags invariants` and Enabled is true: released memory is
// poisoned, a view used after its call is an error that names the call, and a
// broken internal invariant panics instead of becoming an error. Without the
// tag Enabled is a false constant and the compiler removes the branches.
package invariants
