// Package kernels is for computing on a device, and for adding one: it has buffers, devices,
// and the operations that a transformer needs, forward and backward.
//
// A [Device] is a small base (allocate, copy, count) plus groups of operations,
// each an interface of its own ([Matrix], [Norm], [Attention], ...). Code asks
// for the groups that it uses; [Compute] is all of them.
//
// Ownership. A [Buffer] is a handle, not memory: a slot in the device's arena,
// the generation that tells a stale handle from a live one, and its element
// type and count. A device is the memory.Space of its buffers. Whoever
// allocates a buffer owns a plain reference, and releases it or hands it over. A device belongs to one goroutine; [Transfer] is how another one, with a
// device of its own, gets a copy of a buffer.
//
// Operations never allocate. Where one needs scratch memory its arguments have
// a Workspace buffer, and a method of the same group says how many elements it
// must have, as a pure function of shapes. Operations check shapes and types
// against the buffers and return an error; they read nothing outside of them.
// All matrices are row-major and dense. Operands have exactly the elements that
// the dimensions give; a workspace, and the positions of an embedding, may have
// more. A result shares its buffer with an operand only where the operation says
// so. Device work may be queued; [Host] computes before it returns.
//
// Every result is a function of the arguments alone: no operation depends on the
// number of threads, on what ran before, or on where its buffers lie. Random
// draws are keyed ([Key.Draw]), never taken from a sequence.
//
// [Host] computes on the processor. [Null] wraps another device, allocates and
// counts exactly as that one would, records it, and computes nothing: what it
// records is the target's memory behaviour, before step 1. Package kerneltest is
// what any device must pass.
package kernels
