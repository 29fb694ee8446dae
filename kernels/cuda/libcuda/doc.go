// Package libcuda is the CUDA driver of the system as a driver.Driver: gorgonia.org/cu for the
// calls that it has, libcuda.so.1 by purego for those that it lacks. It takes the tag cuda,
// the headers of CUDA 12.4 and a linker's stub of libcuda (build.sh beside package cuda
// fetches both).
//
// A program that imports this package, and the tests of such a package, run on machines with
// an NVIDIA driver and a GPU alone: as it starts, the package cu initialises the driver, and
// where that fails it prints one line and exits with status 1. Without a driver at all the
// system's loader ends the program (status 127).
//
// Calls may come from any goroutine: each locks its thread and makes the context current.
package libcuda
