package testkit

import (
	"syscall"
	"testing"
	"unsafe"
)

// Guarded returns n elements between two inaccessible pages. They end at the second page if
// atEnd is set, or else begin after the first. An access beyond them ends the test binary.
func Guarded[E float32 | byte](t testing.TB, n int, atEnd bool) []E {
	t.Helper()
	var e E
	bytes, page := n*int(unsafe.Sizeof(e)), syscall.Getpagesize()
	size := (bytes + page - 1) / page * page
	region, err := syscall.Mmap(-1, 0, size+2*page, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Munmap(region) })
	for _, outside := range [][]byte{region[:page], region[page+size:]} {
		if err := syscall.Mprotect(outside, syscall.PROT_NONE); err != nil {
			t.Fatal(err)
		}
	}
	inside := region[page : page+size]
	if atEnd {
		inside = inside[size-bytes:]
	}
	return unsafe.Slice((*E)(unsafe.Pointer(&inside[0])), n)
}
