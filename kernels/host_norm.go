package kernels

import (
	"math"

	"github.com/weir-ml/weir/internal/vector"
)

// normEpsilon is added to the variance.
const normEpsilon = 1e-5

// normViews are the opened buffers of LayerNorm.
type normViews struct{ x, gamma, beta, y, mean, rstd []float32 }

func openLayerNorm(c *call, op LayerNorm) (v normViews) {
	c.dimension("Rows", op.Rows)
	c.dimension("Cols", op.Cols)
	all := size(op.Rows, op.Cols)
	v.x = c.floats("X", op.X, all)
	v.gamma = c.floats("Gamma", op.Gamma, op.Cols)
	v.beta = c.floats("Beta", op.Beta, op.Cols)
	v.y = c.floats("Y", op.Y, all)
	v.mean = c.floats("Mean", op.Mean, op.Rows)
	v.rstd = c.floats("RStd", op.RStd, op.Rows)
	c.apart("Y", op.Y, op.X, op.Gamma, op.Beta, op.Mean, op.RStd)
	c.apart("Mean", op.Mean, op.X, op.Gamma, op.Beta, op.RStd)
	c.apart("RStd", op.RStd, op.X, op.Gamma, op.Beta)
	return v
}

// LayerNorm normalises each row, from its own elements alone. Mean and variance
// are added up in float64.
func (h *Host) LayerNorm(op LayerNorm) error {
	c := h.call("LayerNorm")
	v := openLayerNorm(&c, op)
	if c.err != nil {
		return c.err
	}
	t := normTask{normViews: v, set: h.vector, parts: partsOf(len(v.x))}
	launch(h, &h.operations.norm, t, t.parts)
	return nil
}

// normTask is LayerNorm in parts of rows.
type normTask struct {
	normViews
	set   vector.Set
	parts int
}

func (t *normTask) part(i int, _ *worker) {
	cols := len(t.gamma)
	begin, end := share(len(t.mean), 1, i, t.parts)
	for r := begin; r < end; r++ {
		x := t.x[r*cols:][:cols]
		mean := float32(t.set.Total(x) / float64(cols))
		rstd := float32(1 / math.Sqrt(t.set.Squares(x, mean)/float64(cols)+normEpsilon))
		t.mean[r], t.rstd[r] = mean, rstd
		t.set.Normalise(t.y[r*cols:][:cols], x, t.gamma, t.beta, mean, rstd)
	}
}

// normGrads are the opened buffers of LayerNormBackward. What is not computed is nil.
type normGrads struct{ dy, x, gamma, mean, rstd, dx, dgamma, dbeta []float32 }

func openLayerNormBackward(c *call, op LayerNormBackward) (v normGrads) {
	c.dimension("Rows", op.Rows)
	c.dimension("Cols", op.Cols)
	all := size(op.Rows, op.Cols)
	v.dy = c.floats("DY", op.DY, all)
	v.x = c.floats("X", op.X, all)
	v.gamma = c.floats("Gamma", op.Gamma, op.Cols)
	v.mean = c.floats("Mean", op.Mean, op.Rows)
	v.rstd = c.floats("RStd", op.RStd, op.Rows)
	v.dx = c.optional("DX", op.DX, all)
	v.dgamma = c.optional("DGamma", op.DGamma, op.Cols)
	v.dbeta = c.optional("DBeta", op.DBeta, op.Cols)
	c.apart("DX", op.DX, op.DY, op.X, op.Gamma, op.Mean, op.RStd, op.DGamma, op.DBeta)
	c.apart("DGamma", op.DGamma, op.DY, op.X, op.Gamma, op.Mean, op.RStd, op.DBeta)
	c.apart("DBeta", op.DBeta, op.DY, op.X, op.Gamma, op.Mean, op.RStd)
	return v
}

// LayerNormBackward works row by row; DGamma and DBeta add rows in ascending
// order. With n = (x - mean)·rstd and g = dy·gamma a row of DX is
// rstd·(g - mean(g) - n·mean(g·n)).
func (h *Host) LayerNormBackward(op LayerNormBackward) error {
	c := h.call("LayerNormBackward")
	v := openLayerNormBackward(&c, op)
	if c.err != nil {
		return c.err
	}
	if v.dx != nil {
		t := normGradTask{normGrads: v, set: h.vector, parts: partsOf(len(v.x))}
		launch(h, &h.operations.normGrad, t, t.parts)
	}
	if v.dgamma != nil || v.dbeta != nil {
		t := normGainsTask{
			normGrads: v, set: h.vector, parts: h.columnParts(len(v.x), op.Cols),
			firstGamma: !op.AccumulateGamma, firstBeta: !op.AccumulateBeta,
		}
		launch(h, &h.operations.normGains, t, t.parts)
	}
	return nil
}

// normGradTask computes DX in parts of rows.
type normGradTask struct {
	normGrads
	set   vector.Set
	parts int
}

func (t *normGradTask) part(i int, _ *worker) {
	cols := len(t.gamma)
	n := float64(cols)
	begin, end := share(len(t.mean), 1, i, t.parts)
	for r := begin; r < end; r++ {
		dy, x := t.dy[r*cols:][:cols], t.x[r*cols:][:cols]
		mean, rstd := t.mean[r], t.rstd[r]
		g, gn := t.set.NormSums(dy, x, t.gamma, mean, rstd)
		t.set.NormGrad(t.dx[r*cols:][:cols], dy, x, t.gamma, mean, rstd, float32(g/n), float32(gn/n))
	}
}

// normGainsTask computes DGamma and DBeta in parts of columns.
type normGainsTask struct {
	normGrads
	set                   vector.Set
	firstGamma, firstBeta bool
	parts                 int
}

func (t *normGainsTask) part(i int, _ *worker) {
	cols := len(t.gamma)
	begin, end := share(cols, 16, i, t.parts)
	if t.dgamma != nil {
		dgamma := t.dgamma[begin:end]
		if t.firstGamma {
			clear(dgamma)
		}
		for r, mean := range t.mean {
			t.set.NormGain(dgamma, t.dy[r*cols+begin:], t.x[r*cols+begin:], mean, t.rstd[r])
		}
	}
	if t.dbeta != nil {
		dbeta := t.dbeta[begin:end]
		if t.firstBeta {
			clear(dbeta)
		}
		for r := range t.mean {
			t.set.Add(dbeta, t.dy[r*cols+begin:])
		}
	}
}
