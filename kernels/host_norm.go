package kernels

import "math"

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
	n := float64(op.Cols)
	for r := range op.Rows {
		x := v.x[r*op.Cols:][:op.Cols]
		mean := float32(h.vector.Total(x) / n)
		rstd := float32(1 / math.Sqrt(h.vector.Squares(x, mean)/n+normEpsilon))
		v.mean[r], v.rstd[r] = mean, rstd
		h.vector.Normalise(v.y[r*op.Cols:][:op.Cols], x, v.gamma, v.beta, mean, rstd)
	}
	return nil
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
	if !op.AccumulateGamma {
		clear(v.dgamma)
	}
	if !op.AccumulateBeta {
		clear(v.dbeta)
	}
	n := float64(op.Cols)
	for r := range op.Rows {
		dy, x := v.dy[r*op.Cols:][:op.Cols], v.x[r*op.Cols:][:op.Cols]
		mean, rstd := v.mean[r], v.rstd[r]
		if v.dx != nil {
			g, gn := h.vector.NormSums(dy, x, v.gamma, mean, rstd)
			h.vector.NormGrad(v.dx[r*op.Cols:][:op.Cols], dy, x, v.gamma, mean, rstd, float32(g/n), float32(gn/n))
		}
		if v.dgamma != nil {
			h.vector.NormGain(v.dgamma, dy, x, mean, rstd)
		}
		if v.dbeta != nil {
			h.vector.Add(v.dbeta, dy)
		}
	}
	return nil
}
