package kerneltest

import (
	"fmt"
	"math"

	"github.com/weir-ml/weir/kernels"
)

func attentionCases() []Case {
	return []Case{
		newCase("attention", false, attentionForward),
		newCase("attention/causal", false, attentionCausal),
		newCase("attention/backward", false, attentionBackward),
	}
}

// attentionShapes are numbers of tokens, heads and elements per head, with token counts around
// the tile sizes of devices.
var attentionShapes = [][3]int{{1, 1, 1}, {1, 2, 4}, {2, 1, 3}, {5, 3, 8}, {31, 2, 5}, {64, 1, 16}, {65, 2, 4}, {130, 1, 7}, {200, 2, 2}}

// attention copies the operands of an attention to the device and runs it.
func (l *lab) attention(title string, qkv []float32, tokens, heads, dim int) kernels.CausalAttention {
	workspace, _ := l.d.AttentionWorkspace(tokens, heads, dim)
	op := kernels.CausalAttention{
		QKV: l.put("QKV", qkv), Out: l.result("Out", tokens*heads*dim),
		LSE: l.result("LSE", heads*tokens), Workspace: l.result("Workspace", workspace),
		Tokens: tokens, Heads: heads, HeadDim: dim,
	}
	l.do(title, func() error { return l.d.CausalAttention(op) }, op.Out, op.LSE, op.Workspace)
	return op
}

func attentionForward(l *lab) {
	for _, s := range attentionShapes {
		for _, scale := range []float64{1, 6} {
			tokens, heads, dim := s[0], s[1], s[2]
			title := fmt.Sprintf("CausalAttention of %d tokens, %d×%d, scale %v", tokens, heads, dim, scale)
			qkv := l.normal(tokens*3*heads*dim, scale)
			op := l.attention(title, qkv, tokens, heads, dim)
			out, lse := attention(wide(qkv), tokens, heads, dim)
			// Scores, and with them their rounding errors, grow with the square of the scale.
			bound := 0x1p-18 * scale * scale
			l.near(title+": Out", l.read(op.Out), out, bound)
			l.near(title+": LSE", l.read(op.LSE), lse, bound)
			l.drop()
		}
	}
}

// attentionCausal changes everything after a token. The results up to it must not change a bit.
func attentionCausal(l *lab) {
	const tokens, heads, dim = 150, 2, 6
	width := heads * dim
	qkv := l.normal(tokens*3*width, 1)
	op := l.attention("CausalAttention", qkv, tokens, heads, dim)
	out, lse := l.read(op.Out), l.read(op.LSE)
	l.drop()
	for _, last := range []int{0, 1, 14, 15, 16, 62, 63, 64, 65, 127, 128, tokens - 2} {
		title := fmt.Sprintf("CausalAttention with everything after token %d changed", last)
		changed := append(append([]float32{}, qkv[:(last+1)*3*width]...), l.normal((tokens-1-last)*3*width, 30)...)
		op := l.attention(title, changed, tokens, heads, dim)
		l.exactly(title+": Out", l.read(op.Out), out[:(last+1)*width])
		for head := range heads {
			l.exactly(title+": LSE", l.read(op.LSE)[head*tokens:], lse[head*tokens:][:last+1])
		}
		l.drop()
	}
}

func attentionBackward(l *lab) {
	for _, s := range attentionShapes {
		tokens, heads, dim := s[0], s[1], s[2]
		title := fmt.Sprintf("CausalAttentionBackward of %d tokens, %d×%d", tokens, heads, dim)
		qkv, dout := l.normal(tokens*3*heads*dim, 1), l.normal(tokens*heads*dim, 1)
		kept := l.attention(title, qkv, tokens, heads, dim)
		_, workspace := l.d.AttentionWorkspace(tokens, heads, dim)
		op := kernels.CausalAttentionBackward{
			DOut: l.put("DOut", dout), QKV: kept.QKV, Out: kept.Out, LSE: kept.LSE,
			DQKV: l.result("DQKV", len(qkv)), Workspace: l.result("Workspace", workspace),
			Tokens: tokens, Heads: heads, HeadDim: dim,
		}
		l.do(title, func() error { return l.d.CausalAttentionBackward(op) }, op.DQKV, op.Workspace)
		grad := wide(dout)
		l.slopes(title+": DQKV", l.read(op.DQKV), nil, wide(qkv), func(x []float64) float64 {
			out, _ := attention(x, tokens, heads, dim)
			return dot(out, grad)
		})
		// Every element of the result must have been written.
		for i, v := range l.read(op.DQKV) {
			if math.IsNaN(float64(v)) {
				l.fault("%s: DQKV: element %d was not written", title, i)
				break
			}
		}
		l.drop()
	}
}
