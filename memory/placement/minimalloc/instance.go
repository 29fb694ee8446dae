package minimalloc

import (
	"errors"

	"github.com/weir-ml/weir/memory/placement"
)

// ErrFormat is wrapped by every error about what a file says.
var ErrFormat = errors.New("minimalloc: not an instance")

// MaxBuffers is how many buffers and gaps an instance may have.
const MaxBuffers = 1 << 21

// Instance is a problem whose buffers have names, and perhaps a layout.
type Instance struct {
	Problem placement.Problem
	IDs     []string // by buffer
	Offsets []int64  // by buffer; nil where no layout is given
}
