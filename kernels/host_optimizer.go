package kernels

import (
	"math"

	"github.com/weir-ml/weir/internal/arithmetic/vector"
)

// squareParts is the number of partial sums into which the squares of a long buffer are divided,
// regardless of the number of threads.
const squareParts = 64

// squaresTask computes partial sums of squares.
type squaresTask struct {
	x        []float32
	n, first int // length of the whole parameter, and index of the first part in x
	sums     [squareParts]float64
}

func (t *squaresTask) part(i, _ int, w *worker) {
	base := partBound(t.n, t.first)
	begin, end := partBound(t.n, t.first+i), partBound(t.n, t.first+i+1)
	t.sums[i] = w.vector.Squares(t.x[begin-base:end-base], 0)
}

// SumSquares sums squares in float64: those of a short buffer in a single sum, those of a long
// one in parts.
func (h *host) SumSquares(x Buffer) (float64, error) {
	var parts [squareParts]float64
	sums := parts[:h.Parts(x.N)]
	if err := h.squares("SumSquares", sums, x, x.N, 0); err != nil {
		return 0, err
	}
	var sum float64
	for _, s := range sums {
		sum += s
	}
	return sum, nil
}

// AdamW updates Weight, M and V. With g = Factor·Grad:
//
//	m = β1·m + (1-β1)·g    v = β2·v + (1-β2)·g²
//	w = w - lr·(m/(1-β1^t) / (sqrt(v/(1-β2^t)) + ε) + decay·w)
func (h *host) AdamW(op AdamW) error {
	c := h.call("AdamW")
	if op.Step < 1 {
		c.fault(ErrValue, "Step is %d, want at least 1", op.Step)
	}
	if !(op.Beta1 >= 0 && op.Beta1 < 1) {
		c.fault(ErrValue, "Beta1 is %v, want 0 <= Beta1 < 1", op.Beta1)
	}
	if !(op.Beta2 >= 0 && op.Beta2 < 1) {
		c.fault(ErrValue, "Beta2 is %v, want 0 <= Beta2 < 1", op.Beta2)
	}
	n := op.Weight.N
	t := elementsTask{run: updateElements, dst: c.floats("Weight", op.Weight, n), x: c.floats("Grad", op.Grad, n), m: c.floats("M", op.M, n), v: c.floats("V", op.V, n)}
	c.apart("Weight", op.Weight, op.Grad, op.M, op.V)
	c.apart("M", op.M, op.Grad, op.V)
	c.apart("V", op.V, op.Grad)
	if c.done() {
		return c.err
	}
	t.adam = vector.AdamW{
		Factor: op.Factor,
		Beta1:  op.Beta1, Rest1: float32(1 - float64(op.Beta1)),
		Beta2: op.Beta2, Rest2: float32(1 - float64(op.Beta2)),
		Correct1: correction(op.Beta1, op.Step), Correct2: correction(op.Beta2, op.Step),
		Epsilon: op.Epsilon, Rate: op.LearningRate, Decay: op.WeightDecay,
	}
	h.elements(t)
	return nil
}

func updateElements(t *elementsTask, w *worker, i, j int) {
	w.vector.Update(t.dst[i:j], t.x[i:j], t.m[i:j], t.v[i:j], &t.adam)
}

// correction returns 1/(1-beta^step), which corrects the bias of moments that start at 0.
func correction(beta float32, step int64) float32 {
	return float32(1 / (1 - math.Pow(float64(beta), float64(step))))
}
