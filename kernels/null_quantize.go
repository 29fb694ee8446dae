package kernels

// Quantize checks its buffers.
func (n *Null) Quantize(op Quantize) error {
	c := n.call("Quantize")
	openQuantize(&c, op)
	return c.err
}

// Dequantize checks its buffers.
func (n *Null) Dequantize(dst Buffer, q Quantized, _ bool) error {
	c := n.call("Dequantize")
	openDequantize(&c, dst, q)
	return c.err
}

// QuantizedWorkspace returns what the target needs.
func (n *Null) QuantizedWorkspace(m, cols, k int) int { return n.target.QuantizedWorkspace(m, cols, k) }

// QuantizedMatMul checks its buffers.
func (n *Null) QuantizedMatMul(op QuantizedMatMul) error {
	c := n.call("QuantizedMatMul")
	openQuantizedMatMul(&c, op, n.QuantizedWorkspace(op.M, op.N, op.K))
	return c.err
}
