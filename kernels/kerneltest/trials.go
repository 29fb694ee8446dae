package kerneltest

import (
	"reflect"
	"strings"

	"github.com/weir-ml/weir/kernels"
)

// sizes are the dimensions of trials.
type sizes struct{ elements, m, n, k, deep, tokens, heads, width, vocabulary int }

// plain gives the operands of an operation different numbers of elements.
var plain = sizes{elements: 9, m: 3, n: 4, k: 5, deep: 33, tokens: 5, heads: 2, width: 3, vocabulary: 7}

// trials returns every operation once, with operands on the device that fit it.
func trials(l *lab, s sizes) []trial {
	in := func(name string, n int) kernels.Buffer { return l.put(name, l.normal(n, 1)) }
	matmul := kernels.MatMul{
		M: s.m, N: s.n, K: s.k, TransB: true,
		A: in("A", s.m*s.k), B: in("B", s.n*s.k), Bias: in("Bias", s.n), C: l.result("C", s.m*s.n),
	}
	norm := l.norm(l.normal(s.m*s.n, 1), l.normal(s.n, 1), l.normal(s.n, 1))
	normBack := kernels.LayerNormBackward{
		DY: in("DY", s.m*s.n), X: in("X", s.m*s.n), Gamma: in("Gamma", s.n), Mean: in("Mean", s.m), RStd: in("RStd", s.m),
		DX: l.result("DX", s.m*s.n), DGamma: l.result("DGamma", s.n), DBeta: l.result("DBeta", s.n), Rows: s.m, Cols: s.n,
	}
	forward, backward := l.d.AttentionWorkspace(s.tokens, s.heads, s.width)
	all := s.tokens * s.heads * s.width
	attention := kernels.CausalAttention{
		QKV: in("QKV", 3*all), Out: l.result("Out", all), LSE: l.result("LSE", s.tokens*s.heads),
		Workspace: l.result("Workspace", forward), Tokens: s.tokens, Heads: s.heads, HeadDim: s.width,
	}
	attentionBack := kernels.CausalAttentionBackward{
		DOut: in("DOut", all), QKV: in("QKV", 3*all), Out: in("Out", all), LSE: in("LSE", s.tokens*s.heads),
		DQKV: l.result("DQKV", 3*all), Workspace: l.result("Workspace", backward), Tokens: s.tokens, Heads: s.heads, HeadDim: s.width,
	}
	embed := kernels.Embed{
		IDs: l.putInts("IDs", l.ids(s.tokens, s.vocabulary)), Table: in("Table", s.vocabulary*s.width), Positions: in("Positions", s.tokens*s.width),
		X: l.result("X", s.tokens*s.width), Tokens: s.tokens, Width: s.width, Vocabulary: s.vocabulary,
	}
	embedBack := kernels.EmbedBackward{
		IDs: l.putInts("IDs", l.ids(s.tokens, s.vocabulary)), DX: in("DX", s.tokens*s.width), DTable: l.result("DTable", s.vocabulary*s.width),
		DPositions: l.result("DPositions", s.tokens*s.width), Tokens: s.tokens, Width: s.width, Vocabulary: s.vocabulary,
	}
	head, _, _, _, _ := l.head(s.tokens, s.width, s.vocabulary)
	head.Logits = l.result("Logits", 1)
	kept, _, _, _, _ := l.head(s.tokens, s.width, s.vocabulary)
	headBack := l.headBack(kept)
	headBack.LSE, headBack.Logits = in("LSE", s.tokens), l.result("Logits", 1)
	adam := kernels.AdamW{
		Weight: in("Weight", s.elements), Grad: in("Grad", s.elements), M: in("M", s.elements), V: l.put("V", make([]float32, s.elements)),
		Factor: 1, LearningRate: 1e-3, Beta1: 0.9, Beta2: 0.99, Epsilon: 1e-8, Step: 1,
	}
	quantize := kernels.Quantize{
		X: in("X", s.m*s.deep), Rows: s.m, Cols: s.deep, Scale: kernels.Cell{Buffer: in("Scale", 2), Index: 1},
		Rowwise: l.none(kernels.Encoding{}, s.m, s.deep), Columnwise: l.none(kernels.Encoding{}, s.deep, s.m),
		Tally: kernels.Cell{Buffer: l.putInts("Tally", make([]int32, 2*kernels.TallyWords)), Index: 1},
	}
	product := kernels.QuantizedMatMul{
		A: l.quantized(kernels.Encoding{}, l.normal(s.m*s.deep, 1), s.m, s.deep), B: l.quantized(kernels.Encoding{Scaling: kernels.MX32}, l.normal(s.n*s.deep, 1), s.n, s.deep),
		C: l.result("C", s.m*s.n), Bias: in("Bias", s.n),
		Workspace: l.result("Workspace", l.d.QuantizedWorkspace(s.m, s.n, s.deep)), M: s.m, N: s.n, K: s.deep,
	}
	type (
		one   struct{ X kernels.Buffer }
		two   struct{ Dst, X kernels.Buffer }
		three struct{ Dst, X, Y kernels.Buffer }
		rows  struct {
			Dst, X     kernels.Buffer
			Rows, Cols int
		}
		matrix struct {
			Dst kernels.Buffer
			Q   kernels.Quantized
		}
	)
	x, result := func() kernels.Buffer { return in("x", s.elements) }, func() kernels.Buffer { return l.result("dst", s.elements) }
	return []trial{
		newTrial("Zero", one{result()}, "X=!", "", func(op one) error { return l.d.Zero(op.X) }),
		newTrial("Copy", two{result(), x()}, "Dst=& X", "", func(op two) error { return l.d.Copy(op.Dst, op.X) }),
		newTrial("Add", two{x(), x()}, "Dst=& X", "", func(op two) error { return l.d.Add(op.Dst, op.X) }),
		newTrial("Sum", three{result(), x(), x()}, "Dst=& X Y", "", func(op three) error { return l.d.Sum(op.Dst, op.X, op.Y) }),
		newTrial("MatMul", matmul, "A B Bias? C=", "M N K", l.d.MatMul),
		newTrial("AddRow", rows{in("x", s.m*s.n), in("b", s.n), s.m, s.n}, "Dst= X", "Rows Cols",
			func(op rows) error { return l.d.AddRow(op.Dst, op.X, op.Rows, op.Cols) }),
		newTrial("SumRows", rows{l.result("dst", s.n), in("x", s.m*s.n), s.m, s.n}, "Dst= X", "Rows Cols",
			func(op rows) error { return l.d.SumRows(op.Dst, op.X, op.Rows, op.Cols, false) }),
		newTrial("LayerNorm", norm, "X Gamma Beta Y= Mean= RStd=", "Rows Cols", l.d.LayerNorm),
		newTrial("LayerNormBackward", normBack, "DY X Gamma Mean RStd DX=? DGamma=? DBeta=?", "Rows Cols", l.d.LayerNormBackward),
		newTrial("GELU", two{result(), x()}, "Dst=& X", "", func(op two) error { return l.d.GELU(op.Dst, op.X) }),
		newTrial("GELUBackward", three{result(), x(), x()}, "Dst=& X Y", "", func(op three) error { return l.d.GELUBackward(op.Dst, op.X, op.Y) }),
		newTrial("CausalAttention", attention, "QKV Out= LSE= Workspace=+~", "Tokens Heads HeadDim", l.d.CausalAttention),
		newTrial("CausalAttentionBackward", attentionBack, "DOut QKV Out LSE DQKV= Workspace=+~", "Tokens Heads HeadDim", l.d.CausalAttentionBackward),
		newTrial("Embed", embed, "IDs Table Positions+ X=", "Tokens Width Vocabulary", l.d.Embed),
		newTrial("EmbedBackward", embedBack, "IDs DX DTable=? DPositions=?+", "Tokens Width Vocabulary", l.d.EmbedBackward),
		newTrial("HeadLoss", head, "X Table Labels Weights LSE= Workspace=+~ Logits=?!~", "Tokens Width Vocabulary",
			func(op kernels.HeadLoss) error { _, _, err := l.d.HeadLoss(op); return err }),
		newTrial("HeadLossBackward", headBack, "X Table Labels Weights LSE Workspace=+~ Logits=?!~ DX=? DTable=?", "Tokens Width Vocabulary",
			l.d.HeadLossBackward),
		newTrial("Dropout", two{result(), x()}, "Dst=& X", "", func(op two) error { return l.d.Dropout(op.Dst, op.X, 0.5, baseKey) }),
		newTrial("Normal", one{result()}, "X=!", "", func(op one) error { return l.d.Normal(op.X, 1, baseKey) }),
		newTrial("Quantize", quantize, "X Scale.Buffer+? Rowwise.Data= Columnwise.Data= Tally.Buffer=+?", "Rows Cols", l.d.Quantize),
		newTrial("Dequantize", matrix{l.result("dst", s.m*s.deep), l.quantized(kernels.Encoding{}, l.normal(s.m*s.deep, 1), s.m, s.deep)},
			"Dst= Q.Data", "Q.Rows Q.Cols", func(op matrix) error { return l.d.Dequantize(op.Dst, op.Q, true) }),
		newTrial("QuantizedMatMul", product, "A.Data B.Data Bias? C= Workspace=+~", "M N K", l.d.QuantizedMatMul),
		newTrial("SumSquares", one{x()}, "X!", "", func(op one) error { _, err := l.d.SumSquares(op.X); return err }),
		newTrial("AdamW", adam, "Weight= Grad M= V=", "", l.d.AdamW),
	}
}

// newTrial returns a trial of an operation, whose buffers and dimensions are fields of op.
// operands lists the names of the buffers, each with its properties: = written, ? may be zero,
// + may have more elements, ~ has no meaningful content afterwards, ! any number of elements, &
// may share memory with another operand.
func newTrial[T any](name string, op T, operands, dimensions string, run func(op T) error) trial {
	field := func(path string) any {
		v := reflect.ValueOf(&op).Elem()
		for _, name := range strings.Split(path, ".") {
			v = v.FieldByName(name)
		}
		return v.Addr().Interface()
	}
	t := trial{name: name, run: func() error { return run(op) }}
	for _, word := range strings.Fields(operands) {
		path := strings.TrimRight(word, "=?+~!&")
		is := func(mark string) bool { return strings.Contains(word[len(path):], mark) }
		t.operands = append(t.operands, operand{
			name: path, at: field(path).(*kernels.Buffer),
			result: is("="), optional: is("?"), roomy: is("+"), scratch: is("~"), free: is("!"), shared: is("&"),
		})
	}
	for _, path := range strings.Fields(dimensions) {
		t.dimensions = append(t.dimensions, field(path).(*int))
	}
	return t
}
