package stagetest

import (
	"fmt"
	"maps"

	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
)

// Exact is a host that also keeps the float32 values of each matrix that it quantizes.
// Dequantize and QuantizedMatMul compute with these values, so that a stage in FP8 computes the
// function whose gradient its backward returns (a straight-through estimator). The rounded
// function is piecewise constant, so differences of its losses cannot be compared with a
// gradient. The Host still checks shapes and makes codes, scales and tallies. Check a stage in
// FP8 twice: on a Host, and on an Exact to compare its gradients.
type Exact struct {
	*kernels.Host
	matrices map[memory.Handle]matrix // by the handle of the quantized buffer
}

// matrix holds the values of a matrix row by row, with cols elements in a row.
type matrix struct {
	x    []float32
	cols int
}

// exact marks an Exact, and types that embed one.
func (e *Exact) exact() {}

// Quantize also keeps the values, and discards those of released buffers.
func (e *Exact) Quantize(op kernels.Quantize) error {
	if err := e.Host.Quantize(op); err != nil {
		return err
	}
	x, err := e.floats(op.X)
	if err != nil {
		return err
	}
	if e.matrices == nil {
		e.matrices = map[memory.Handle]matrix{}
	}
	maps.DeleteFunc(e.matrices, func(h memory.Handle, _ matrix) bool { return e.Bytes(kernels.Buffer{Handle: h}) == 0 })
	row := matrix{x, op.Cols}
	for q, m := range map[kernels.Quantized]matrix{op.Rowwise: row, op.Columnwise: row.transposed()} {
		if q != (kernels.Quantized{}) {
			e.matrices[q.Data.Handle] = m
		}
	}
	return nil
}

// Dequantize sets dst to the values that were quantized.
func (e *Exact) Dequantize(dst kernels.Buffer, q kernels.Quantized, transposed bool) error {
	if err := e.Host.Dequantize(dst, q, transposed); err != nil {
		return err
	}
	m, err := e.matrix(q)
	if err != nil {
		return err
	}
	if transposed {
		m = m.transposed()
	}
	return e.WriteFloat32(dst, m.x)
}

// QuantizedMatMul sums in float64 and rounds once.
func (e *Exact) QuantizedMatMul(op kernels.QuantizedMatMul) error {
	c, err := e.floats(op.C)
	if err != nil {
		return err
	}
	if err := e.Host.QuantizedMatMul(op); err != nil {
		return err
	}
	a, err := e.matrix(op.A)
	if err != nil {
		return err
	}
	b, err := e.matrix(op.B)
	if err != nil {
		return err
	}
	bias := make([]float32, op.N)
	if op.Bias != (kernels.Buffer{}) {
		if bias, err = e.floats(op.Bias); err != nil {
			return err
		}
	}
	for i := range c {
		row, column := a.x[i/op.N*op.K:][:op.K], b.x[i%op.N*op.K:][:op.K]
		sum := float64(bias[i%op.N])
		if op.Accumulate {
			sum += float64(c[i])
		}
		for k, v := range row {
			sum += float64(v) * float64(column[k])
		}
		c[i] = float32(sum)
	}
	return e.WriteFloat32(op.C, c)
}

func (e *Exact) floats(b kernels.Buffer) ([]float32, error) {
	x := make([]float32, b.N)
	return x, e.ReadFloat32(x, b)
}

// matrix returns the values of a quantized matrix. It may have one more column than the values:
// a byte with two codes may be padded with a zero.
func (e *Exact) matrix(q kernels.Quantized) (matrix, error) {
	m, ok := e.matrices[q.Data.Handle]
	if !ok || len(m.x) != q.Rows*m.cols || m.cols > q.Cols {
		return m, fmt.Errorf("stagetest: Exact has not quantized the matrix of %d×%d in buffer %v: use it in the buffer in which Quantize has made it", q.Rows, q.Cols, q.Data.Handle)
	}
	wide := matrix{make([]float32, q.Rows*q.Cols), q.Cols}
	for r := range q.Rows {
		copy(wide.x[r*q.Cols:][:q.Cols], m.x[r*m.cols:][:m.cols])
	}
	return wide, nil
}

func (m matrix) transposed() matrix {
	t := matrix{make([]float32, len(m.x)), len(m.x) / m.cols}
	for i, v := range m.x {
		t.x[i%m.cols*t.cols+i/m.cols] = v
	}
	return t
}
