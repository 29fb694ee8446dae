package kerneltest

import "github.com/weir-ml/weir/kernels"

// sizes are the dimensions of trials.
type sizes struct{ elements, m, n, k, deep, tokens, heads, width, vocabulary int }

// plain are sizes by which operands of one operation have different numbers of elements.
var plain = sizes{elements: 9, m: 3, n: 4, k: 5, deep: 33, tokens: 5, heads: 2, width: 3, vocabulary: 7}

// trials returns every operation once, with operands that fit it and that are on
// the device.
func trials(l *lab, s sizes) []trial {
	in := func(name string, n int) *kernels.Buffer {
		b := l.put(name, l.normal(n, 1))
		return &b
	}
	matmul := kernels.MatMul{
		M: s.m, N: s.n, K: s.k, TransB: true,
		A: *in("A", s.m*s.k), B: *in("B", s.n*s.k), Bias: *in("Bias", s.n), C: l.result("C", s.m*s.n),
	}
	norm := kernels.LayerNorm{
		X: *in("X", s.m*s.n), Gamma: *in("Gamma", s.n), Beta: *in("Beta", s.n),
		Y: l.result("Y", s.m*s.n), Mean: l.result("Mean", s.m), RStd: l.result("RStd", s.m), Rows: s.m, Cols: s.n,
	}
	normBack := kernels.LayerNormBackward{
		DY: *in("DY", s.m*s.n), X: *in("X", s.m*s.n), Gamma: *in("Gamma", s.n), Mean: *in("Mean", s.m), RStd: *in("RStd", s.m),
		DX: l.result("DX", s.m*s.n), DGamma: l.result("DGamma", s.n), DBeta: l.result("DBeta", s.n), Rows: s.m, Cols: s.n,
	}
	forward, backward := l.d.AttentionWorkspace(s.tokens, s.heads, s.width)
	all := s.tokens * s.heads * s.width
	attention := kernels.CausalAttention{
		QKV: *in("QKV", 3*all), Out: l.result("Out", all), LSE: l.result("LSE", s.tokens*s.heads),
		Workspace: l.result("Workspace", forward), Tokens: s.tokens, Heads: s.heads, HeadDim: s.width,
	}
	attentionBack := kernels.CausalAttentionBackward{
		DOut: *in("DOut", all), QKV: *in("QKV", 3*all), Out: *in("Out", all), LSE: *in("LSE", s.tokens*s.heads),
		DQKV: l.result("DQKV", 3*all), Workspace: l.result("Workspace", backward), Tokens: s.tokens, Heads: s.heads, HeadDim: s.width,
	}
	embed := kernels.Embed{
		IDs: l.putInts("IDs", l.ids(s.tokens, s.vocabulary)), Table: *in("Table", s.vocabulary*s.width), Positions: *in("Positions", s.tokens*s.width),
		X: l.result("X", s.tokens*s.width), Tokens: s.tokens, Width: s.width, Vocabulary: s.vocabulary,
	}
	embedBack := kernels.EmbedBackward{
		IDs: l.putInts("IDs", l.ids(s.tokens, s.vocabulary)), DX: *in("DX", s.tokens*s.width), DTable: l.result("DTable", s.vocabulary*s.width),
		DPositions: l.result("DPositions", s.tokens*s.width), Tokens: s.tokens, Width: s.width, Vocabulary: s.vocabulary,
	}
	head, _, _, _, _ := l.head(s.tokens, s.width, s.vocabulary)
	kept, _, _, _, _ := l.head(s.tokens, s.width, s.vocabulary)
	headBack := kernels.HeadLossBackward{
		X: kept.X, Table: kept.Table, Labels: kept.Labels, Weights: kept.Weights, LSE: *in("LSE", s.tokens),
		Workspace: kept.Workspace, DX: l.result("DX", s.tokens*s.width), DTable: l.result("DTable", s.vocabulary*s.width),
		Seed: 1, Tokens: s.tokens, Width: s.width, Vocabulary: s.vocabulary,
	}
	adam := kernels.AdamW{
		Weight: *in("Weight", s.elements), Grad: *in("Grad", s.elements), M: *in("M", s.elements), V: l.put("V", make([]float32, s.elements)),
		Factor: 1, LearningRate: 1e-3, Beta1: 0.9, Beta2: 0.99, Epsilon: 1e-8, Step: 1,
	}
	zero := l.result("x", s.elements)
	normal := l.result("x", s.elements)
	square := in("x", s.elements)
	copyDst, copySrc := l.result("dst", s.elements), in("src", s.elements)
	addDst, addSrc := in("dst", s.elements), in("src", s.elements)
	sumDst, sumA, sumB := l.result("dst", s.elements), in("a", s.elements), in("b", s.elements)
	gelu, geluX := l.result("y", s.elements), in("x", s.elements)
	geluDX, geluDY, geluBackX := l.result("dx", s.elements), in("dy", s.elements), in("x", s.elements)
	dropY, dropX := l.result("y", s.elements), in("x", s.elements)
	rowX, rowB, rowRows, rowCols := in("x", s.m*s.n), in("b", s.n), s.m, s.n
	sumRows, sumRowsX, sumRowsRows, sumRowsCols := l.result("dst", s.n), in("x", s.m*s.n), s.m, s.n

	quantize := kernels.Quantize{
		X: *in("X", s.m*s.deep), Rows: s.m, Cols: s.deep, Scale: kernels.Cell{Buffer: *in("Scale", 2), Index: 1},
		Rowwise: l.none(kernels.Encoding{}, s.m, s.deep), Columnwise: l.none(kernels.Encoding{}, s.deep, s.m),
		Tally: kernels.Cell{Buffer: l.putInts("Tally", make([]int32, 2*kernels.TallyWords)), Index: 1},
	}
	decoded, decode := l.result("dst", s.m*s.deep), l.quantized(kernels.Encoding{}, s.m, s.deep)
	product := kernels.QuantizedMatMul{
		A: l.quantized(kernels.Encoding{}, s.m, s.deep), B: l.quantized(kernels.Encoding{Scaling: kernels.MX32}, s.n, s.deep),
		C: l.result("C", s.m*s.n), Bias: *in("Bias", s.n),
		Workspace: l.result("Workspace", l.d.QuantizedWorkspace(s.m, s.n, s.deep)), M: s.m, N: s.n, K: s.deep,
	}

	read := func(name string, b *kernels.Buffer) operand { return operand{name: name, at: b} }
	write := func(name string, b *kernels.Buffer) operand { return operand{name: name, at: b, result: true} }
	with := func(o operand, change func(o *operand)) operand { change(&o); return o }
	roomy := func(o *operand) { o.roomy = true }
	scratch := func(o *operand) { o.roomy, o.scratch = true, true }
	optional := func(o *operand) { o.optional = true }
	slab := func(o *operand) { o.roomy, o.optional = true, true }
	free := func(o *operand) { o.free = true }
	shared := func(o *operand) { o.shared = true }

	return []trial{
		{"Zero", []operand{with(write("x", &zero), free)}, nil, func() error { return l.d.Zero(zero) }},
		{"Copy", []operand{with(write("dst", &copyDst), shared), read("src", copySrc)}, nil, func() error { return l.d.Copy(copyDst, *copySrc) }},
		{"Add", []operand{with(write("dst", addDst), shared), read("src", addSrc)}, nil, func() error { return l.d.Add(*addDst, *addSrc) }},
		{"Sum", []operand{with(write("dst", &sumDst), shared), read("a", sumA), read("b", sumB)}, nil, func() error { return l.d.Sum(sumDst, *sumA, *sumB) }},
		{"MatMul", []operand{
			read("A", &matmul.A), read("B", &matmul.B), with(read("Bias", &matmul.Bias), optional), write("C", &matmul.C),
		}, []*int{&matmul.M, &matmul.N, &matmul.K}, func() error { return l.d.MatMul(matmul) }},
		{"AddRow", []operand{write("x", rowX), read("b", rowB)}, []*int{&rowRows, &rowCols},
			func() error { return l.d.AddRow(*rowX, *rowB, rowRows, rowCols) }},
		{"SumRows", []operand{write("dst", &sumRows), read("x", sumRowsX)}, []*int{&sumRowsRows, &sumRowsCols},
			func() error { return l.d.SumRows(sumRows, *sumRowsX, sumRowsRows, sumRowsCols, false) }},
		{"LayerNorm", []operand{
			read("X", &norm.X), read("Gamma", &norm.Gamma), read("Beta", &norm.Beta),
			write("Y", &norm.Y), write("Mean", &norm.Mean), write("RStd", &norm.RStd),
		}, []*int{&norm.Rows, &norm.Cols}, func() error { return l.d.LayerNorm(norm) }},
		{"LayerNormBackward", []operand{
			read("DY", &normBack.DY), read("X", &normBack.X), read("Gamma", &normBack.Gamma),
			read("Mean", &normBack.Mean), read("RStd", &normBack.RStd), with(write("DX", &normBack.DX), optional),
			with(write("DGamma", &normBack.DGamma), optional), with(write("DBeta", &normBack.DBeta), optional),
		}, []*int{&normBack.Rows, &normBack.Cols}, func() error { return l.d.LayerNormBackward(normBack) }},
		{"GELU", []operand{with(write("y", &gelu), shared), read("x", geluX)}, nil, func() error { return l.d.GELU(gelu, *geluX) }},
		{"GELUBackward", []operand{with(write("dx", &geluDX), shared), read("dy", geluDY), read("x", geluBackX)}, nil,
			func() error { return l.d.GELUBackward(geluDX, *geluDY, *geluBackX) }},
		{"CausalAttention", []operand{
			read("QKV", &attention.QKV), write("Out", &attention.Out), write("LSE", &attention.LSE),
			with(write("Workspace", &attention.Workspace), scratch),
		}, []*int{&attention.Tokens, &attention.Heads, &attention.HeadDim}, func() error { return l.d.CausalAttention(attention) }},
		{"CausalAttentionBackward", []operand{
			read("DOut", &attentionBack.DOut), read("QKV", &attentionBack.QKV), read("Out", &attentionBack.Out),
			read("LSE", &attentionBack.LSE), write("DQKV", &attentionBack.DQKV), with(write("Workspace", &attentionBack.Workspace), scratch),
		}, []*int{&attentionBack.Tokens, &attentionBack.Heads, &attentionBack.HeadDim},
			func() error { return l.d.CausalAttentionBackward(attentionBack) }},
		{"Embed", []operand{
			read("IDs", &embed.IDs), read("Table", &embed.Table), with(read("Positions", &embed.Positions), roomy), write("X", &embed.X),
		}, []*int{&embed.Tokens, &embed.Width, &embed.Vocabulary}, func() error { return l.d.Embed(embed) }},
		{"EmbedBackward", []operand{
			read("IDs", &embedBack.IDs), read("DX", &embedBack.DX), with(write("DTable", &embedBack.DTable), optional),
			with(with(write("DPositions", &embedBack.DPositions), optional), roomy),
		}, []*int{&embedBack.Tokens, &embedBack.Width, &embedBack.Vocabulary}, func() error { return l.d.EmbedBackward(embedBack) }},
		{"HeadLoss", []operand{
			read("X", &head.X), read("Table", &head.Table), read("Labels", &head.Labels), read("Weights", &head.Weights),
			write("LSE", &head.LSE), with(write("Workspace", &head.Workspace), scratch),
		}, []*int{&head.Tokens, &head.Width, &head.Vocabulary}, func() error { _, _, err := l.d.HeadLoss(head); return err }},
		{"HeadLossBackward", []operand{
			read("X", &headBack.X), read("Table", &headBack.Table), read("Labels", &headBack.Labels), read("Weights", &headBack.Weights),
			read("LSE", &headBack.LSE), with(write("Workspace", &headBack.Workspace), scratch),
			with(write("DX", &headBack.DX), optional), with(write("DTable", &headBack.DTable), optional),
		}, []*int{&headBack.Tokens, &headBack.Width, &headBack.Vocabulary}, func() error { return l.d.HeadLossBackward(headBack) }},
		{"Dropout", []operand{with(write("y", &dropY), shared), read("x", dropX)}, nil, func() error { return l.d.Dropout(dropY, *dropX, 0.5, baseKey) }},
		{"Normal", []operand{with(write("x", &normal), free)}, nil, func() error { return l.d.Normal(normal, 1, baseKey) }},
		{"Quantize", []operand{
			read("X", &quantize.X), with(read("Scale", &quantize.Scale.Buffer), slab), write("Rowwise", &quantize.Rowwise.Data),
			write("Columnwise", &quantize.Columnwise.Data), with(write("Tally", &quantize.Tally.Buffer), slab),
		}, []*int{&quantize.Rows, &quantize.Cols}, func() error { return l.d.Quantize(quantize) }},
		{"Dequantize", []operand{write("dst", &decoded), read("q", &decode.Data)}, []*int{&decode.Rows, &decode.Cols},
			func() error { return l.d.Dequantize(decoded, decode, true) }},
		{"QuantizedMatMul", []operand{
			read("A", &product.A.Data), read("B", &product.B.Data), with(read("Bias", &product.Bias), optional), write("C", &product.C),
			with(write("Workspace", &product.Workspace), scratch),
		}, []*int{&product.M, &product.N, &product.K}, func() error { return l.d.QuantizedMatMul(product) }},
		{"SumSquares", []operand{with(read("x", square), free)}, nil, func() error { _, err := l.d.SumSquares(*square); return err }},
		{"AdamW", []operand{
			write("Weight", &adam.Weight), read("Grad", &adam.Grad), write("M", &adam.M), write("V", &adam.V),
		}, nil, func() error { return l.d.AdamW(adam) }},
	}
}
