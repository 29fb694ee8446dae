// Package reference trains the model of stages/transformer one microbatch after
// the other by plain calls of kernels: no plan, no runner, no stages, no books.
//
// It is written from the formulas in the documentation of stages/transformer and
// imports only kernels and memory, so that it cannot share a mistake with what it
// is compared with.
package reference
