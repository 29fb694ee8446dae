// Package ptx has the kernels of package cuda: the source of each group of operations in CUDA C,
// and the PTX that clang makes of it (generate.sh), for sm_80 and later. It owns nothing and runs
// nothing: a driver loads the text.
//
// Kernels add up in an order that depends on shapes alone, and no number is the result of an
// atomic on floats or of an approximate instruction. So the bits of a result are the same for
// every order of blocks and warps. tensor.cu alone uses tensor cores, whose order of sums within
// one instruction is the hardware's.
package ptx
