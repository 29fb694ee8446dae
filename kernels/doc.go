// Package kernels defines how to compute on a device, and how to add one: its buffers, devices,
// and the operations that a transformer needs, forward and backward.
//
// [NewHost] opens a device that computes on the processor. [Null] wraps another device: it allocates and
// accounts exactly as that device would, records its allocations, and computes nothing. Thus the target's
// memory behavior is known before step 1. Package kerneltest is the test suite that every device must
// pass.
//
// A [Device] is a small base (allocate, copy, account) plus groups of operations, each with a
// separate interface ([Matrix], [Norm], [Attention], ...). Code asks for the groups that it
// uses; [Compute] combines all of them.
//
// Ownership. A [Buffer] is a handle, not memory: it consists of a slot in the device's arena, a
// generation that distinguishes stale handles from live ones, an element type and an element
// count. A device is the memory.Space for its buffers. The caller of Alloc owns a plain
// reference, and either releases it or passes it on. A device belongs to one goroutine; another
// goroutine, with its own device, copies a buffer with [Transfer].
//
// Operations never allocate. If an operation needs scratch memory, its arguments include a
// Workspace buffer, and a method of the same group returns the number of elements that the device
// requires for the shapes. Operations check shapes and types against the buffers and return
// an error; they read nothing outside the buffers. All matrices are row-major and dense. Operands
// have exactly as many elements as the dimensions imply; a workspace, and the positions of an
// embedding, may have more. A result shares its buffer with an operand only if the operation
// allows it. A device may queue its work; [Host] computes before it returns.
//
// On a given kind of device, with given instructions, every result is a function of the arguments
// alone: it does not depend on the number of threads, on earlier operations or on the addresses of
// the buffers. Random draws are keyed ([Key.Draw]), never taken from a sequence.
package kernels
