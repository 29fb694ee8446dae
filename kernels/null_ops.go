package kernels

// The operations of Null open the buffers, which checks them, and do no more.

// Zero checks its buffer.
func (n *Null) Zero(x Buffer) error {
	c := n.call("Zero")
	c.floats("x", x, x.N)
	return c.err
}

// Copy checks its buffers.
func (n *Null) Copy(dst, src Buffer) error {
	c := n.call("Copy")
	openPair(&c, dst, src)
	return c.err
}

// Add checks its buffers.
func (n *Null) Add(dst, src Buffer) error {
	c := n.call("Add")
	openPair(&c, dst, src)
	return c.err
}

// Sum checks its buffers.
func (n *Null) Sum(dst, a, b Buffer) error {
	c := n.call("Sum")
	openSum(&c, dst, a, b)
	return c.err
}

// MatMul checks its buffers.
func (n *Null) MatMul(op MatMul) error {
	c := n.call("MatMul")
	openMatMul(&c, op)
	return c.err
}

// AddRow checks its buffers.
func (n *Null) AddRow(x, b Buffer, rows, cols int) error {
	c := n.call("AddRow")
	openAddRow(&c, x, b, rows, cols)
	return c.err
}

// SumRows checks its buffers.
func (n *Null) SumRows(dst, x Buffer, rows, cols int, _ bool) error {
	c := n.call("SumRows")
	openSumRows(&c, dst, x, rows, cols)
	return c.err
}

// LayerNorm checks its buffers.
func (n *Null) LayerNorm(op LayerNorm) error {
	c := n.call("LayerNorm")
	openLayerNorm(&c, op)
	return c.err
}

// LayerNormBackward checks its buffers.
func (n *Null) LayerNormBackward(op LayerNormBackward) error {
	c := n.call("LayerNormBackward")
	openLayerNormBackward(&c, op)
	return c.err
}

// GELU checks its buffers.
func (n *Null) GELU(y, x Buffer) error {
	c := n.call("GELU")
	openGELU(&c, y, x)
	return c.err
}

// GELUBackward checks its buffers.
func (n *Null) GELUBackward(dx, dy, x Buffer) error {
	c := n.call("GELUBackward")
	openGELUBackward(&c, dx, dy, x)
	return c.err
}

// AttentionWorkspace returns what the target needs.
func (n *Null) AttentionWorkspace(tokens, heads, headDim int) (forward, backward int) {
	return n.target.AttentionWorkspace(tokens, heads, headDim)
}

// CausalAttention checks its buffers.
func (n *Null) CausalAttention(op CausalAttention) error {
	c := n.call("CausalAttention")
	need, _ := n.AttentionWorkspace(op.Tokens, op.Heads, op.HeadDim)
	openAttention(&c, op, need)
	return c.err
}

// CausalAttentionBackward checks its buffers.
func (n *Null) CausalAttentionBackward(op CausalAttentionBackward) error {
	c := n.call("CausalAttentionBackward")
	_, need := n.AttentionWorkspace(op.Tokens, op.Heads, op.HeadDim)
	openAttentionBackward(&c, op, need)
	return c.err
}

// Embed checks its buffers, not the ids.
func (n *Null) Embed(op Embed) error {
	c := n.call("Embed")
	openEmbed(&c, op)
	return c.err
}

// EmbedBackward checks its buffers, not the ids.
func (n *Null) EmbedBackward(op EmbedBackward) error {
	c := n.call("EmbedBackward")
	openEmbedBackward(&c, op)
	return c.err
}

// HeadWorkspace returns what the target needs.
func (n *Null) HeadWorkspace(tokens, width, vocabulary int) int {
	return n.target.HeadWorkspace(tokens, width, vocabulary)
}

// HeadLoss checks its buffers, not the labels, and returns zeros.
func (n *Null) HeadLoss(op HeadLoss) (sum, weight float64, err error) {
	c := n.call("HeadLoss")
	openHeadLoss(&c, op, n.HeadWorkspace(op.Tokens, op.Width, op.Vocabulary))
	return 0, 0, c.err
}

// HeadLossBackward checks its buffers, not the labels.
func (n *Null) HeadLossBackward(op HeadLossBackward) error {
	c := n.call("HeadLossBackward")
	openHeadLossBackward(&c, op, n.HeadWorkspace(op.Tokens, op.Width, op.Vocabulary))
	return c.err
}

// Dropout checks its buffers.
func (n *Null) Dropout(y, x Buffer, p float32, _ Key) error {
	c := n.call("Dropout")
	openDropout(&c, y, x, p)
	return c.err
}

// Normal checks its buffer.
func (n *Null) Normal(x Buffer, std float32, _ Key) error {
	c := n.call("Normal")
	openNormal(&c, x, std)
	return c.err
}

// SumSquares checks its buffer and returns 0.
func (n *Null) SumSquares(x Buffer) (float64, error) {
	c := n.call("SumSquares")
	c.floats("x", x, x.N)
	return 0, c.err
}

// AdamW checks its buffers.
func (n *Null) AdamW(op AdamW) error {
	c := n.call("AdamW")
	openAdamW(&c, op)
	return c.err
}
