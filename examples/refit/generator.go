package main

import (
	"errors"
	"fmt"

	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/stages/transformer"
)

// generator is an independent engine: a device, and weights by name. It shares only the
// definition of the model with the trainer. It keeps the first error.
type generator struct {
	dev      *kernels.Host
	weights  map[string]kernels.Buffer
	received int64            // bytes
	made     []kernels.Buffer // for the current token
	err      error
}

func newGenerator() (*generator, error) {
	dev, err := kernels.NewHost(kernels.HostConfig{Capacity: 16 << 20})
	return &generator{dev: dev, weights: map[string]kernels.Buffer{}}, err
}

// receive copies a weight. The original belongs to the trainer, and may be released afterwards. Codes are
// decoded, because this engine computes in float32.
func (g *generator) receive(w transformer.Weight) error {
	from := w.Float32
	if from.N == 0 {
		from = w.Quantized.Data
	}
	g.received += int64(from.N) * from.Type.Bytes()
	b, err := kernels.Transfer(g.dev, w.Device, from)
	if err == nil && w.Quantized.Rows > 0 {
		b, err = g.decode(w.Quantized, b)
	}
	if err != nil {
		return fmt.Errorf("receiving %s: %w", w.Name, err)
	}
	g.weights[w.Name] = b
	return nil
}

// decode returns the transpose of q in float32, a matrix of in×out elements, and releases its
// codes.
func (g *generator) decode(q kernels.Quantized, codes kernels.Buffer) (kernels.Buffer, error) {
	b, err := g.dev.Alloc(memory.Resident, kernels.Float32, q.Rows*q.Cols)
	if err != nil {
		return b, err
	}
	q.Data = codes
	err = g.dev.Dequantize(b, q, true)
	_, ended := g.dev.Release(codes)
	return b, errors.Join(err, ended)
}

// text continues a prompt by a number of bytes, each the most likely next one.
func (g *generator) text(prompt string, bytes int) (string, error) {
	ids := []int32{}
	for _, b := range []byte(prompt) {
		ids = append(ids, int32(b))
	}
	for range bytes {
		next := g.next(ids[max(0, len(ids)-size.Context):])
		ids = append(ids, next)
		prompt += string(rune(next))
	}
	return prompt, g.err
}

// next returns the most likely token after the given ones.
func (g *generator) next(ids []int32) (best int32) {
	defer g.free()
	tokens, width := len(ids), size.Width
	in := g.alloc(kernels.Int32, tokens)
	g.check(g.dev.WriteInt32(in, ids))
	x := g.alloc(kernels.Float32, tokens*width)
	table := g.weights["embedding.weight"]
	g.check(g.dev.Embed(kernels.Embed{IDs: in, Table: table, Positions: g.weights["positions.weight"], X: x,
		Tokens: tokens, Width: width, Vocabulary: size.Vocabulary}))
	for l := range size.Layers {
		name := fmt.Sprintf("block%d", l)
		qkv := g.linear(g.norm(x, name+".norm1", tokens), name+".attention.qkv", tokens, width, 3*width)
		g.add(x, g.linear(g.attention(qkv, tokens), name+".attention.output", tokens, width, width))
		up := g.linear(g.norm(x, name+".norm2", tokens), name+".mlp.up", tokens, width, 4*width)
		g.check(g.dev.GELU(up, up))
		g.add(x, g.linear(up, name+".mlp.down", tokens, 4*width, width))
	}
	logits := g.alloc(kernels.Float32, tokens*size.Vocabulary)
	n := g.norm(x, "norm", tokens)
	g.check(g.dev.MatMul(kernels.MatMul{A: n, B: table, C: logits, M: tokens, K: width, N: size.Vocabulary, TransB: true}))
	values := make([]float32, logits.N)
	g.check(g.dev.ReadFloat32(values, logits))
	if g.err != nil {
		return 0
	}
	last := values[(tokens-1)*size.Vocabulary:]
	for id, v := range last {
		if v > last[best] {
			best = int32(id)
		}
	}
	return best
}

func (g *generator) norm(x kernels.Buffer, name string, tokens int) kernels.Buffer {
	y, mean, rstd := g.alloc(kernels.Float32, x.N), g.alloc(kernels.Float32, tokens), g.alloc(kernels.Float32, tokens)
	g.check(g.dev.LayerNorm(kernels.LayerNorm{X: x, Gamma: g.weights[name+".weight"], Beta: g.weights[name+".bias"],
		Y: y, Mean: mean, RStd: rstd, Rows: tokens, Cols: size.Width}))
	return y
}

func (g *generator) linear(x kernels.Buffer, name string, tokens, in, out int) kernels.Buffer {
	y := g.alloc(kernels.Float32, tokens*out)
	g.check(g.dev.MatMul(kernels.MatMul{A: x, B: g.weights[name+".weight"], Bias: g.weights[name+".bias"], C: y, M: tokens, K: in, N: out}))
	return y
}

func (g *generator) attention(qkv kernels.Buffer, tokens int) kernels.Buffer {
	dim := size.Width / size.Heads
	scratch, _ := g.dev.AttentionWorkspace(tokens, size.Heads, dim)
	out, lse, workspace := g.alloc(kernels.Float32, tokens*size.Width), g.alloc(kernels.Float32, tokens*size.Heads), g.alloc(kernels.Float32, scratch)
	g.check(g.dev.CausalAttention(kernels.CausalAttention{QKV: qkv, Out: out, LSE: lse, Workspace: workspace,
		Tokens: tokens, Heads: size.Heads, HeadDim: dim}))
	return out
}

func (g *generator) add(x, y kernels.Buffer) { g.check(g.dev.Add(x, y)) }

// alloc returns a buffer that is released after the token.
func (g *generator) alloc(t kernels.DType, n int) kernels.Buffer {
	b, err := g.dev.Alloc(memory.Workspace, t, n)
	if g.check(err); err == nil {
		g.made = append(g.made, b)
	}
	return b
}

// free releases the buffers of a token.
func (g *generator) free() {
	for _, b := range g.made {
		_, err := g.dev.Release(b)
		g.check(err)
	}
	g.made = g.made[:0]
}

// check keeps the first error. The operations after it may fail too.
func (g *generator) check(err error) {
	if g.err == nil {
		g.err = err
	}
}
