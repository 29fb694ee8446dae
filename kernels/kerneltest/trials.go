package kerneltest

import "github.com/weir-ml/weir/kernels"

// trials returns every operation once, with operands that fit it and that are on
// the device.
func trials(l *lab) []trial {
	in := func(name string, n int) *kernels.Buffer {
		b := l.put(name, l.normal(n, 1))
		return &b
	}
	matmul := kernels.MatMul{
		M: 3, N: 4, K: 5, TransB: true,
		A: *in("A", 15), B: *in("B", 20), Bias: *in("Bias", 4), C: l.result("C", 12),
	}
	norm := kernels.LayerNorm{
		X: *in("X", 12), Gamma: *in("Gamma", 4), Beta: *in("Beta", 4),
		Y: l.result("Y", 12), Mean: l.result("Mean", 3), RStd: l.result("RStd", 3), Rows: 3, Cols: 4,
	}
	normBack := kernels.LayerNormBackward{
		DY: *in("DY", 12), X: *in("X", 12), Gamma: *in("Gamma", 4), Mean: *in("Mean", 3), RStd: *in("RStd", 3),
		DX: l.result("DX", 12), DGamma: l.result("DGamma", 4), DBeta: l.result("DBeta", 4), Rows: 3, Cols: 4,
	}
	forward, backward := l.d.AttentionWorkspace(5, 2, 3)
	attention := kernels.CausalAttention{
		QKV: *in("QKV", 90), Out: l.result("Out", 30), LSE: l.result("LSE", 10),
		Workspace: l.result("Workspace", forward), Tokens: 5, Heads: 2, HeadDim: 3,
	}
	attentionBack := kernels.CausalAttentionBackward{
		DOut: *in("DOut", 30), QKV: *in("QKV", 90), Out: *in("Out", 30), LSE: *in("LSE", 10),
		DQKV: l.result("DQKV", 90), Workspace: l.result("Workspace", backward), Tokens: 5, Heads: 2, HeadDim: 3,
	}
	embed := kernels.Embed{
		IDs: l.putInts("IDs", l.ids(5, 7)), Table: *in("Table", 21), Positions: *in("Positions", 15),
		X: l.result("X", 15), Tokens: 5, Width: 3, Vocabulary: 7,
	}
	embedBack := kernels.EmbedBackward{
		IDs: l.putInts("IDs", l.ids(5, 7)), DX: *in("DX", 15), DTable: l.result("DTable", 21),
		DPositions: l.result("DPositions", 15), Tokens: 5, Width: 3, Vocabulary: 7,
	}
	head, _, _, _, _ := l.head(5, 3, 7)
	kept, _, _, _, _ := l.head(5, 3, 7)
	headBack := kernels.HeadLossBackward{
		X: kept.X, Table: kept.Table, Labels: kept.Labels, Weights: kept.Weights, LSE: *in("LSE", 5),
		Workspace: kept.Workspace, DX: l.result("DX", 15), DTable: l.result("DTable", 21),
		Seed: 1, Tokens: 5, Width: 3, Vocabulary: 7,
	}
	adam := kernels.AdamW{
		Weight: *in("Weight", 9), Grad: *in("Grad", 9), M: *in("M", 9), V: l.put("V", make([]float32, 9)),
		Factor: 1, LearningRate: 1e-3, Beta1: 0.9, Beta2: 0.99, Epsilon: 1e-8, Step: 1,
	}
	zero := l.result("x", 9)
	normal := l.result("x", 9)
	square := in("x", 9)
	copyDst, copySrc := l.result("dst", 9), in("src", 9)
	addDst, addSrc := in("dst", 9), in("src", 9)
	sumDst, sumA, sumB := l.result("dst", 9), in("a", 9), in("b", 9)
	gelu, geluX := l.result("y", 9), in("x", 9)
	geluDX, geluDY, geluBackX := l.result("dx", 9), in("dy", 9), in("x", 9)
	dropY, dropX := l.result("y", 9), in("x", 9)
	rowX, rowB, rowRows, rowCols := in("x", 12), in("b", 4), 3, 4
	sumRows, sumRowsX, sumRowsRows, sumRowsCols := l.result("dst", 4), in("x", 12), 3, 4

	quantize := kernels.Quantize{
		X: *in("X", 66), Rows: 2, Cols: 33, Scale: kernels.Cell{Buffer: *in("Scale", 2), Index: 1},
		Rowwise: l.none(kernels.Encoding{}, 2, 33), Columnwise: l.none(kernels.Encoding{}, 33, 2),
		Tally: kernels.Cell{Buffer: l.putInts("Tally", make([]int32, 2*kernels.TallyWords)), Index: 1},
	}
	decoded, decode := l.result("dst", 66), l.quantized(kernels.Encoding{Scaling: kernels.MX32}, 2, 33)
	product := kernels.QuantizedMatMul{
		A: l.quantized(kernels.Encoding{}, 2, 33), B: l.quantized(decode.Encoding, 3, 33), C: l.result("C", 6), Bias: *in("Bias", 3),
		Workspace: l.result("Workspace", l.d.QuantizedWorkspace(2, 3, 33)), M: 2, N: 3, K: 33,
	}

	read := func(name string, b *kernels.Buffer) operand { return operand{name: name, at: b} }
	write := func(name string, b *kernels.Buffer) operand { return operand{name: name, at: b, result: true} }
	with := func(o operand, change func(o *operand)) operand { change(&o); return o }
	roomy := func(o *operand) { o.roomy = true }
	scratch := func(o *operand) { o.roomy, o.scratch = true, true }
	optional := func(o *operand) { o.optional = true }
	slab := func(o *operand) { o.roomy, o.optional = true, true }
	free := func(o *operand) { o.free = true }

	return []trial{
		{"Zero", []operand{with(write("x", &zero), free)}, nil, func() error { return l.d.Zero(zero) }},
		{"Copy", []operand{write("dst", &copyDst), read("src", copySrc)}, nil, func() error { return l.d.Copy(copyDst, *copySrc) }},
		{"Add", []operand{write("dst", addDst), read("src", addSrc)}, nil, func() error { return l.d.Add(*addDst, *addSrc) }},
		{"Sum", []operand{write("dst", &sumDst), read("a", sumA), read("b", sumB)}, nil, func() error { return l.d.Sum(sumDst, *sumA, *sumB) }},
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
		{"GELU", []operand{write("y", &gelu), read("x", geluX)}, nil, func() error { return l.d.GELU(gelu, *geluX) }},
		{"GELUBackward", []operand{write("dx", &geluDX), read("dy", geluDY), read("x", geluBackX)}, nil,
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
		{"Dropout", []operand{write("y", &dropY), read("x", dropX)}, nil, func() error { return l.d.Dropout(dropY, *dropX, 0.5, baseKey) }},
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
