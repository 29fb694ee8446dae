//go:build (amd64 || arm64) && !purego

package float8

import "unsafe"

// streams reports whether every row of dst, stride bytes apart, begins at a line of memory.
func streams(dst []byte, stride int) bool {
	return (uintptr(unsafe.Pointer(unsafe.SliceData(dst)))|uintptr(stride))%line == 0
}

// stream copies rows of bytes, each consisting of whole lines, past the caches.
func stream(dst []byte, stride int, src []byte, srcStride, rows, bytes int) {
	streamRows256(&dst[0], stride, &src[0], srcStride, rows, bytes/line)
}

//go:noescape
func streamRows256(dst *byte, stride int, src *byte, srcStride, rows, lines int)

// fence orders streamed writes before the writes that follow it.
func fence()
