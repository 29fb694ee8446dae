// Package ptx contains the kernels of package cuda: the source of each group of operations in
// CUDA C, and the PTX that clang compiles it to (generate.sh), for sm_80 and later. It only
// contains the texts; a driver loads them.
//
// Kernels sum in an order that depends on shapes alone, and use neither floating-point atomics
// nor approximate instructions. So the bits of a result are the same for every order of blocks
// and warps. Only tensor.cu uses tensor cores, whose order of sums within one instruction is
// determined by the hardware.
package ptx
