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
	gamma, beta := v.gamma, v.beta[:len(v.gamma)]
	for r := range op.Rows {
		x := v.x[r*op.Cols:][:len(gamma)]
		y := v.y[r*op.Cols:][:len(gamma)]
		mean := float32(sum(x) / n)
		rstd := float32(1 / math.Sqrt(squares(x, mean)/n+normEpsilon))
		v.mean[r], v.rstd[r] = mean, rstd
		for j, e := range x {
			y[j] = (e-mean)*rstd*gamma[j] + beta[j]
		}
	}
	return nil
}

// sum returns Σ x in float64: four partial sums, elements in turn, so that an
// addition need not wait for the one before.
func sum(x []float32) float64 {
	var s0, s1, s2, s3 float64
	for ; len(x) >= 4; x = x[4:] {
		s0 += float64(x[0])
		s1 += float64(x[1])
		s2 += float64(x[2])
		s3 += float64(x[3])
	}
	for _, v := range x {
		s0 += float64(v)
	}
	return s0 + s1 + (s2 + s3)
}

// squares returns Σ (x - mean)² in float64, in the order of sum.
func squares(x []float32, mean float32) float64 {
	m := float64(mean)
	var s0, s1, s2, s3 float64
	for ; len(x) >= 4; x = x[4:] {
		d0, d1, d2, d3 := float64(x[0])-m, float64(x[1])-m, float64(x[2])-m, float64(x[3])-m
		s0 += d0 * d0
		s1 += d1 * d1
		s2 += d2 * d2
		s3 += d3 * d3
	}
	for _, v := range x {
		d := float64(v) - m
		s0 += d * d
	}
	return s0 + s1 + (s2 + s3)
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
// order.
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
	for r := range op.Rows {
		dy := v.dy[r*op.Cols:][:op.Cols]
		x := v.x[r*op.Cols:][:op.Cols]
		if v.dx != nil {
			normRowBackward(v.dx[r*op.Cols:][:op.Cols], dy, x, v.gamma, v.mean[r], v.rstd[r])
		}
		if v.dgamma != nil {
			mean, rstd, dgamma := v.mean[r], v.rstd[r], v.dgamma[:len(dy)]
			x := x[:len(dy)]
			for j, g := range dy {
				dgamma[j] += g * ((x[j] - mean) * rstd)
			}
		}
		if v.dbeta != nil {
			addTo(v.dbeta, dy)
		}
	}
	return nil
}

// normRowBackward writes one row of DX: with n = (x - mean)·rstd and g = dy·gamma
// it is rstd·(g - mean(g) - n·mean(g·n)).
func normRowBackward(dx, dy, x, gamma []float32, mean, rstd float32) {
	x, dy, gamma = x[:len(dx)], dy[:len(dx)], gamma[:len(dx)]
	var g0, g1, n0, n1 float64
	j := 0
	for ; j+1 < len(dx); j += 2 {
		a, b := dy[j]*gamma[j], dy[j+1]*gamma[j+1]
		g0 += float64(a)
		g1 += float64(b)
		n0 += float64(a * ((x[j] - mean) * rstd))
		n1 += float64(b * ((x[j+1] - mean) * rstd))
	}
	if j < len(dx) {
		a := dy[j] * gamma[j]
		g0 += float64(a)
		n0 += float64(a * ((x[j] - mean) * rstd))
	}
	n := float64(len(dx))
	meanG, meanGN := float32((g0+g1)/n), float32((n0+n1)/n)
	for j := range dx {
		dx[j] = rstd * (dy[j]*gamma[j] - meanG - (x[j]-mean)*rstd*meanGN)
	}
}
