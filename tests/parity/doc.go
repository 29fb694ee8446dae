// Package parity contains the suite which shows that numbers do not depend on the plan (L9):
// not on the order of actions, not on the split into stages, not on recompute, not on the
// look-ahead.
//
// The files reference_*_test.go train the model of stages/transformer one microbatch after the
// other by direct calls of kernels: no plan, no runner, no stages, no books. They are written
// from the formulas in the documentation of stages/transformer and import only kernels and
// memory, so that they cannot share a mistake with the code under test.
package parity
