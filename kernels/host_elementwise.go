package kernels

import "math"

// operand is a buffer that an operation reads or writes, with its name for errors.
type operand struct {
	name string
	b    Buffer
}

// each runs an elementwise operation on at most three operands with the same number of
// elements. The first is the result.
func (h *host) each(op string, run func(t *elementsTask, w *worker, i, j int), operands ...operand) error {
	c := h.call(op)
	var views [3][]float32
	for i, o := range operands {
		views[i] = c.floats(o.name, o.b, operands[0].b.N)
		c.aligned(operands[0], o)
	}
	if c.done() {
		return c.err
	}
	h.elements(elementsTask{run: run, dst: views[0], x: views[1], y: views[2]})
	return nil
}

// Zero sets every element of x to 0.
func (h *host) Zero(x Buffer) error { return h.each("Zero", zeroElements, operand{"x", x}) }

func zeroElements(t *elementsTask, _ *worker, i, j int) { clear(t.dst[i:j]) }

// zero clears x.
func (h *host) zero(x []float32) { h.elements(elementsTask{dst: x, run: zeroElements}) }

// Poison sets every element of x to NaN. A runner with -tags invariants poisons a gradient that
// its stage must overwrite.
func (h *host) Poison(x Buffer) error {
	return h.each("Poison", func(t *elementsTask, _ *worker, i, j int) {
		for k := range t.dst[i:j] {
			t.dst[i+k] = float32(math.NaN())
		}
	}, operand{"x", x})
}

// Copy sets dst to src.
func (h *host) Copy(dst, src Buffer) error {
	return h.each("Copy", func(t *elementsTask, _ *worker, i, j int) { copy(t.dst[i:j], t.x[i:j]) }, operand{"dst", dst}, operand{"src", src})
}

// Add adds src to dst.
func (h *host) Add(dst, src Buffer) error {
	return h.each("Add", addElements, operand{"dst", dst}, operand{"src", src})
}

func addElements(t *elementsTask, w *worker, i, j int) { w.vector.Add(t.dst[i:j], t.x[i:j]) }

// Sum sets dst to a + b.
func (h *host) Sum(dst, a, b Buffer) error {
	return h.each("Sum", func(t *elementsTask, w *worker, i, j int) { w.vector.Sum(t.dst[i:j], t.x[i:j], t.y[i:j]) },
		operand{"dst", dst}, operand{"a", a}, operand{"b", b})
}

// GELU computes the activation with an error of at most 2^-21·|x|.
func (h *host) GELU(y, x Buffer) error {
	return h.each("GELU", func(t *elementsTask, w *worker, i, j int) { w.vector.GELU(t.dst[i:j], t.x[i:j]) }, operand{"y", y}, operand{"x", x})
}

// GELUBackward multiplies dy by the derivative, with an error of at most 2^-20·|dy|.
func (h *host) GELUBackward(dx, dy, x Buffer) error {
	return h.each("GELUBackward", func(t *elementsTask, w *worker, i, j int) { w.vector.GELUGrad(t.dst[i:j], t.x[i:j], t.y[i:j]) },
		operand{"dx", dx}, operand{"dy", dy}, operand{"x", x})
}
