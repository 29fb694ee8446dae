package kernels

import "math"

// normEpsilon is added to the variance.
const normEpsilon = 1e-5

// LayerNorm normalizes each row independently of the others. It accumulates the mean and the
// variance in float64.
func (h *host) LayerNorm(op LayerNorm) error {
	c := h.call("LayerNorm")
	c.dimensions("Rows Cols", op.Rows, op.Cols)
	all := size(op.Rows, op.Cols)
	t := normTask{
		x: c.floats("X", op.X, all), gamma: c.floats("Gamma", op.Gamma, op.Cols), beta: c.floats("Beta", op.Beta, op.Cols),
		y: c.floats("Y", op.Y, all), mean: c.floats("Mean", op.Mean, op.Rows), rstd: c.floats("RStd", op.RStd, op.Rows),
	}
	c.apart("Y", op.Y, op.X, op.Gamma, op.Beta, op.Mean, op.RStd)
	c.apart("Mean", op.Mean, op.X, op.Gamma, op.Beta, op.RStd)
	c.apart("RStd", op.RStd, op.X, op.Gamma, op.Beta)
	if c.done() {
		return c.err
	}
	launch(h, &h.operations.norm, t, partsOf(len(t.x)))
	return nil
}

// normTask computes LayerNorm. Its parts are ranges of rows.
type normTask struct{ x, gamma, beta, y, mean, rstd []float32 }

func (t *normTask) part(i, parts int, w *worker) {
	cols := len(t.gamma)
	begin, end := share(len(t.mean), 1, i, parts)
	for r := begin; r < end; r++ {
		x := t.x[r*cols:][:cols]
		mean := float32(w.vector.Total(x) / float64(cols))
		rstd := float32(1 / math.Sqrt(w.vector.Squares(x, mean)/float64(cols)+normEpsilon))
		t.mean[r], t.rstd[r] = mean, rstd
		w.vector.Normalise(t.y[r*cols:][:cols], x, t.gamma, t.beta, mean, rstd)
	}
}

// normGrads holds the opened buffers of LayerNormBackward. Gradients that are not computed are
// nil.
type normGrads struct{ dy, x, gamma, mean, rstd, dx, dgamma, dbeta []float32 }

// LayerNormBackward works row by row; it sums DGamma and DBeta over rows in ascending order.
// With n = (x - mean)·rstd and g = dy·gamma, a row of DX is rstd·(g - mean(g) -
// n·mean(g·n)).
func (h *host) LayerNormBackward(op LayerNormBackward) error {
	c := h.call("LayerNormBackward")
	c.dimensions("Rows Cols", op.Rows, op.Cols)
	all := size(op.Rows, op.Cols)
	v := normGrads{
		dy: c.floats("DY", op.DY, all), x: c.floats("X", op.X, all), gamma: c.floats("Gamma", op.Gamma, op.Cols),
		mean: c.floats("Mean", op.Mean, op.Rows), rstd: c.floats("RStd", op.RStd, op.Rows),
		dx: c.optional("DX", op.DX, all), dgamma: c.optional("DGamma", op.DGamma, op.Cols), dbeta: c.optional("DBeta", op.DBeta, op.Cols),
	}
	c.apart("DX", op.DX, op.DY, op.X, op.Gamma, op.Mean, op.RStd, op.DGamma, op.DBeta)
	c.apart("DGamma", op.DGamma, op.DY, op.X, op.Gamma, op.Mean, op.RStd, op.DBeta)
	c.apart("DBeta", op.DBeta, op.DY, op.X, op.Gamma, op.Mean, op.RStd)
	if c.done() {
		return c.err
	}
	if v.dx != nil {
		launch(h, &h.operations.normGrad, normGradTask{v}, partsOf(len(v.x)))
	}
	if v.dgamma != nil || v.dbeta != nil {
		t := normGainsTask{normGrads: v, firstGamma: !op.AccumulateGamma, firstBeta: !op.AccumulateBeta}
		launch(h, &h.operations.normGains, t, h.columnParts(len(v.x), op.Cols))
	}
	return nil
}

// normGradTask computes DX. Its parts are ranges of rows.
type normGradTask struct{ normGrads }

func (t *normGradTask) part(i, parts int, w *worker) {
	cols := len(t.gamma)
	n := float64(cols)
	begin, end := share(len(t.mean), 1, i, parts)
	for r := begin; r < end; r++ {
		dy, x := t.dy[r*cols:][:cols], t.x[r*cols:][:cols]
		mean, rstd := t.mean[r], t.rstd[r]
		g, gn := w.vector.NormSums(dy, x, t.gamma, mean, rstd)
		w.vector.NormGrad(t.dx[r*cols:][:cols], dy, x, t.gamma, mean, rstd, float32(g/n), float32(gn/n))
	}
}

// normGainsTask computes DGamma and DBeta. Its parts are ranges of columns.
type normGainsTask struct {
	normGrads
	firstGamma, firstBeta bool
}

func (t *normGainsTask) part(i, parts int, w *worker) {
	cols := len(t.gamma)
	begin, end := share(cols, 16, i, parts)
	if t.dgamma != nil {
		dgamma := t.dgamma[begin:end]
		if t.firstGamma {
			clear(dgamma)
		}
		for r, mean := range t.mean {
			w.vector.NormGain(dgamma, t.dy[r*cols+begin:], t.x[r*cols+begin:], mean, t.rstd[r])
		}
	}
	if t.dbeta != nil {
		dbeta := t.dbeta[begin:end]
		if t.firstBeta {
			clear(dbeta)
		}
		for r := range t.mean {
			w.vector.Add(dbeta, t.dy[r*cols+begin:])
		}
	}
}
