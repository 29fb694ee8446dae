// Package libcuda implements driver.Driver with the CUDA driver of the system: it uses
// gorgonia.org/cu for the calls that it has, and libcuda.so.1 through purego for the others. It
// needs the tag cuda, the headers of CUDA 12.4 and a linker's stub of libcuda (build.sh in the
// directory of package cuda fetches both).
//
// [Open] opens a GPU by its number.
//
// A program that imports this package, and the tests of such a package, run only on machines
// with an NVIDIA driver and a GPU: at startup, package cu initializes the driver, and if that fails
// it prints one line and exits with status 1. Without any driver the system's loader ends the
// program (status 127).
//
// Calls may come from any goroutine: each locks its thread and makes the context current.
package libcuda
