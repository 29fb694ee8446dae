// Package cublas makes NVIDIA's cuBLAS available as a driver.Library on systems that have it:
// [Open] loads it by name, and nothing is linked against it. A [Library] belongs to one device.
// It owns its handle, and borrows the stream and the workspace that it is bound to.
//
// Products in float32 are pedantic: float32 in every phase, no TF32. The library chooses an
// algorithm by the shape of a product. With one stream and one workspace, the choice is the
// same in every run on the same kind of GPU with the same version of cuBLAS. Another GPU or
// version may give other bits, and so may a row of a product with more rows.
package cublas
