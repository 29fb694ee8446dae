package memory

// Renew maps fresh pages over a range with a mapper that may fail.
func Renew(mem []byte, mmap func(mem []byte, prot, how uintptr) error) error { return renew(mem, mmap) }

// MapFixedNoreplace is refused where there is a mapping.
const MapFixedNoreplace = mapFixedNoreplace

// MapAt is the mapper of the system.
var MapAt = mapAt

// KernelBytes returns how many bytes of a range the kernel has pages for.
func KernelBytes(mem []byte) int64 { return kernelBytes(mem) }
