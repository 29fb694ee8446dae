package kernels

import (
	"reflect"

	"github.com/weir-ml/weir/internal/arithmetic/gemm"
	"github.com/weir-ml/weir/internal/arithmetic/vector"
)

// Identifiers exported for the tests of this package.

// Philox returns the draw of Philox4x32-10 for a counter of two words, given as stream and
// block, and a key.
func Philox(seed, stream, block uint64) [4]uint32 {
	a, b, c, d := vector.Philox{Seed: seed, Stream: stream}.Draw(block)
	return [4]uint32{a, b, c, d}
}

// Normals returns the normal draws of a block of uniform draws.
func Normals(u [4]uint32) [4]float64 { return normals(u) }

// NullEvents is the maximum number of events that a Null keeps.
const NullEvents = nullEvents

// ProductParts returns the number of parts into which the given number of threads divides a
// product, and whether the parts are rows.
func ProductParts(op MatMul, threads int) (parts int, byRows bool) {
	x := multiplication{crew: &crew{pool: &Pool{threads: threads}}, m: op.M, n: op.N, k: op.K, b: gemm.Matrix{Trans: op.TransB}}
	x.cut()
	return x.parts, x.byRows
}

// Idle reports whether a device keeps no state of an operation.
func (h *Host) Idle() bool { return reflect.ValueOf(h.operations).IsZero() }
