// Package parity holds the suite which shows that numbers do not depend on the
// plan (L9): not on the order of actions, not on the split into stages, not on
// recompute, not on the look-ahead.
package parity
