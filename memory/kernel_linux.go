package memory

import (
	"encoding/binary"
	"os"
	"unsafe"
)

// kernelBytes returns the total size of a range's pages that are present in memory or in swap space,
// according to /proc/self/pagemap, or -1 if that is unknown.
func kernelBytes(mem []byte) int64 {
	const inMemory, inSwap = 1 << 63, 1 << 62
	f, err := os.Open("/proc/self/pagemap")
	if err != nil {
		return -1
	}
	defer f.Close()
	page := os.Getpagesize()
	first := int64(uintptr(unsafe.Pointer(unsafe.SliceData(mem)))) / int64(page)
	left := (len(mem) + page - 1) / page
	var pages int64
	for entries := make([]byte, 8*min(left, 1<<16)); left > 0; {
		entries = entries[:8*min(left, len(entries)/8)]
		if _, err := f.ReadAt(entries, 8*first); err != nil {
			return -1
		}
		for i := 0; i < len(entries); i += 8 {
			if binary.NativeEndian.Uint64(entries[i:])&(inMemory|inSwap) != 0 {
				pages++
			}
		}
		first += int64(len(entries) / 8)
		left -= len(entries) / 8
	}
	return pages * int64(page)
}
