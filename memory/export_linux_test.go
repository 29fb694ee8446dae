package memory

// Renew maps fresh pages over a range with a mapper that may fail.
func Renew(mem []byte, mmap func(mem []byte, prot, how uintptr) error) error { return renew(mem, mmap) }

// MapFixedNoreplace makes a mapping fail if there is one at the address.
const MapFixedNoreplace = mapFixedNoreplace

// MapAt is the mapper of the system.
var MapAt = mapAt

// KernelBytes returns the size of a range's pages that are present in the kernel.
func KernelBytes(mem []byte) int64 { return kernelBytes(mem) }
