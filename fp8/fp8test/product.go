package fp8test

import (
	"fmt"

	"github.com/weir-ml/weir/kernels"
)

// product compares the products of all pairs of a recipe's encodings.
func (r *Recipe) product(p *pair) {
	round := 0
	for _, a := range r.Ways {
		for _, b := range r.Ways {
			round++
			p.productOnce(a, b, round)
			p.drop()
		}
	}
}

// mixed compares products of encodings of different recipes.
func mixed(p *pair) {
	all := Recipes()
	for i, a := range all {
		for j, b := range all {
			if i != j {
				p.productOnce(a.Ways[0], b.Ways[len(b.Ways)-1], 7*i+j)
				p.drop()
			}
		}
	}
}

func (p *pair) productOnce(a, b Way, round int) {
	m, n, k := 1+p.rng.IntN(40), 1+p.rng.IntN(80), 1+p.rng.IntN(400)
	switch round % 5 {
	case 0:
		m, n, k = 28, 64, 256
	case 1:
		m, n, k = 1, 3, 128*(1+p.rng.IntN(3))
	}
	what := fmt.Sprintf("QuantizedMatMul %d×%d×%d of %s and %s, round %d", m, n, k, a.Encoding, b.Encoding, round)
	x, y := p.operand(a, m, k, round), p.operand(b, n, k, round+1)
	start := make([]float32, m*n)
	for i := range start {
		start[i] = float32(p.rng.NormFloat64())
	}
	c, bias := p.floats(start), p.floats(start[:n])
	op := kernels.QuantizedMatMul{M: m, N: n, K: k, Accumulate: round%2 == 0}
	host, device := op, op
	host.A, host.B, host.C = x.host, y.host, c.host
	device.A, device.B, device.C = x.device, y.device, c.device
	if round%3 == 0 {
		host.Bias, device.Bias = bias.host, bias.device
	}
	host.Workspace = p.alloc(kernels.Float32, max(1, p.host.QuantizedWorkspace(m, n, k))).host
	if need := p.device.QuantizedWorkspace(m, n, k); need > 0 {
		device.Workspace = p.alloc(kernels.Float32, need).device
	}
	p.must(p.host.QuantizedMatMul(host))
	if err := p.device.QuantizedMatMul(device); err != nil {
		p.fault("%s: %w", what, err)
		return
	}
	p.sameFloats(what, c)
}

// operand is a matrix that the host has quantized, on both.
func (p *pair) operand(way Way, rows, cols, round int) quantized {
	q := p.room(way.Encoding, rows, cols)
	op := way.Options
	op.X, op.Rows, op.Cols, op.Rowwise = p.floats(p.numbers(rows, cols, round)).host, rows, cols, q.host
	p.must(p.host.Quantize(op))
	data := make([]byte, q.host.Data.N)
	p.must(p.host.ReadUint8(data, q.host.Data))
	p.must(p.device.WriteUint8(q.device.Data, data))
	return q
}
