package kerneltest

import "math"

// The references are the formulas of package kernels, computed in float64.

// matmul returns op(a)·op(b) and, for the bound, Σ|a|·|b|.
func matmul(a, b []float64, m, n, k int, transA, transB bool) (c, magnitude []float64) {
	c, magnitude = make([]float64, m*n), make([]float64, m*n)
	for i := range m {
		for j := range n {
			for l := range k {
				x, y := a[i*k+l], b[l*n+j]
				if transA {
					x = a[l*m+i]
				}
				if transB {
					y = b[j*k+l]
				}
				c[i*n+j] += x * y
				magnitude[i*n+j] += math.Abs(x * y)
			}
		}
	}
	return c, magnitude
}

// layerNorm returns the normalized rows, and mean and 1/sqrt(variance + 1e-5) of each.
func layerNorm(x, gamma, beta []float64, rows, cols int) (y, mean, rstd []float64) {
	y, mean, rstd = make([]float64, rows*cols), make([]float64, rows), make([]float64, rows)
	for r := range rows {
		row := x[r*cols : (r+1)*cols]
		for _, v := range row {
			mean[r] += v / float64(cols)
		}
		var variance float64
		for _, v := range row {
			variance += (v - mean[r]) * (v - mean[r]) / float64(cols)
		}
		rstd[r] = 1 / math.Sqrt(variance+1e-5)
		for j, v := range row {
			y[r*cols+j] = (v-mean[r])*rstd[r]*gamma[j] + beta[j]
		}
	}
	return y, mean, rstd
}

// gelu returns the tanh form of GELU. Far below 0, 1 + tanh has no significant digit left, so
// gelu computes the same value with the exponential.
func gelu(x float64) float64 {
	u := math.Sqrt(2/math.Pi) * (x + 0.044715*x*x*x)
	if u < -1 {
		e := math.Exp(2 * u)
		return x * e / (1 + e)
	}
	return 0.5 * x * (1 + math.Tanh(u))
}

// attention returns softmax(q·kᵀ/sqrt(dim))·v of each head, where position i attends to
// positions 0..i, and the logarithms of the sums.
func attention(qkv []float64, tokens, heads, dim int) (out, lse []float64) {
	out, lse = make([]float64, tokens*heads*dim), make([]float64, heads*tokens)
	width := heads * dim
	at := func(part, t, head int) []float64 {
		return qkv[t*3*width+part*width+head*dim:][:dim]
	}
	scores := make([]float64, tokens)
	for head := range heads {
		for i := range tokens {
			top := math.Inf(-1)
			for j := 0; j <= i; j++ {
				scores[j] = dot(at(0, i, head), at(1, j, head)) / math.Sqrt(float64(dim))
				top = max(top, scores[j])
			}
			var sum float64
			for j := 0; j <= i; j++ {
				sum += math.Exp(scores[j] - top)
			}
			lse[head*tokens+i] = top + math.Log(sum)
			row := out[i*width+head*dim:][:dim]
			for j := 0; j <= i; j++ {
				p := math.Exp(scores[j]-top) / sum
				for d, v := range at(2, j, head) {
					row[d] += p * v
				}
			}
		}
	}
	return out, lse
}

// headLoss returns Σ weight·(-log p(label)), and the logarithms of the sums.
func headLoss(x, table []float64, labels []int32, weights []float64, tokens, width, vocabulary int) (total float64, lse []float64) {
	lse = make([]float64, tokens)
	logits := make([]float64, vocabulary)
	for t := range tokens {
		top := math.Inf(-1)
		for v := range logits {
			logits[v] = dot(x[t*width:(t+1)*width], table[v*width:(v+1)*width])
			top = max(top, logits[v])
		}
		var sum float64
		for _, l := range logits {
			sum += math.Exp(l - top)
		}
		lse[t] = top + math.Log(sum)
		total += weights[t] * (lse[t] - logits[labels[t]])
	}
	return total, lse
}
