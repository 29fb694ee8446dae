// Package cublas is NVIDIA's cuBLAS as a driver.Library, where the system has it: it is opened by name
// when [Open] is called, and nothing is linked against it. A [Library] belongs to one device; it owns
// its handle, and borrows the stream and the workspace that it is bound to.
//
// Products in float32 are pedantic: float32 in every phase, no TF32. The library chooses an algorithm
// by the shape of a product. One stream and one workspace make that the same in every run on
// one kind of GPU with one version of cuBLAS; another of either may have other bits, and so may
// a row of a product of more rows.
package cublas
