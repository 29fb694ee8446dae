package kernels

import (
	"reflect"

	"github.com/weir-ml/weir/internal/product"
	"github.com/weir-ml/weir/internal/vector"
)

// Exported for the tests of this package.

// Philox returns the draw of Philox4x32-10 for a counter of two words and a key.
func Philox(seed, stream, block uint64) [4]uint32 {
	a, b, c, d := vector.Philox{Seed: seed, Stream: stream}.Draw(block)
	return [4]uint32{a, b, c, d}
}

// Normals returns the normal draws of a block of uniform ones.
func Normals(u [4]uint32) [4]float64 { return normals(u) }

// NullEvents is the most events that a Null keeps.
const NullEvents = nullEvents

// ProductParts returns into how many parts of a product the given threads are to cut
// it, and whether by rows.
func ProductParts(op MatMul, threads int) (parts int, byRows bool) {
	x := multiplication{crew: &crew{pool: &Pool{threads: threads}}, m: op.M, n: op.N, k: op.K, b: product.Matrix{Trans: op.TransB}}
	x.cut()
	return x.parts, x.byRows
}

// Idle reports whether a device holds nothing of an operation.
func (h *Host) Idle() bool { return reflect.ValueOf(h.operations).IsZero() }
