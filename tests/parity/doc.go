// Package parity shows that numbers do not depend on the plan (L9): neither on the order of actions nor on
// the split into stages, recompute or the look-ahead.
//
// The files reference_*_test.go train the model of stages/transformer one microbatch after another by
// calling kernels directly, without plan, runner, stages or books. They follow the formulas in the
// documentation of stages/transformer and import only kernels and memory, so they cannot share a mistake
// with the code under test.
package parity
