package minimalloc

import (
	"errors"

	"github.com/weir-ml/weir/memory/placement"
)

// ErrFormat is wrapped by every error about the contents of a file.
var ErrFormat = errors.New("minimalloc: not an instance")

// The limits of Read. The largest published instance has 18,692 buffers.
const (
	MaxBuffers = 1 << 18 // buffers and gaps
	MaxBytes   = 64 << 20
)

// Instance is a problem with the names of its buffers and optionally a layout.
type Instance struct {
	Problem placement.Problem
	IDs     []string // by buffer
	Offsets []int64  // by buffer; nil if there is no layout
}
