package minimalloc

import (
	"errors"

	"github.com/weir-ml/weir/memory/placement"
)

// ErrFormat is wrapped by every error about what a file says.
var ErrFormat = errors.New("minimalloc: not an instance")

// The most that Read takes. The largest published instance has 18,692 buffers.
const (
	MaxBuffers = 1 << 18 // buffers and gaps
	MaxBytes   = 64 << 20
)

// Instance is a problem whose buffers have names, and perhaps a layout.
type Instance struct {
	Problem placement.Problem
	IDs     []string // by buffer
	Offsets []int64  // by buffer; nil where no layout is given
}
