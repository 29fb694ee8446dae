package kerneltest

import (
	"fmt"

	"github.com/weir-ml/weir/kernels"
)

func normCases() []Case {
	return []Case{
		newCase("layernorm", false, layerNormForward),
		newCase("layernorm/rows", false, layerNormRows),
		newCase("layernorm/backward", false, layerNormBackward),
	}
}

// normShapes are numbers of rows and columns.
var normShapes = [][2]int{{1, 1}, {1, 8}, {3, 5}, {7, 64}, {2, 129}, {65, 16}}

// normInput draws rows of very different scales, some of them so small that the epsilon
// matters. No mean is much larger than the deviation of its row: otherwise the rounding of the
// mean alone would exceed the bound.
func normInput(l *lab, rows, cols int) (x, gamma, beta []float32) {
	for r := range rows {
		row := l.normal(cols, []float64{1, 0.003, 50}[r%3])
		for j := range row {
			if r%6 == 3 {
				row[j]++
			}
		}
		x = append(x, row...)
	}
	gamma, beta = l.normal(cols, 1), l.normal(cols, 1)
	return x, gamma, beta
}

// norm copies the operands of a layer norm to the device.
func (l *lab) norm(x, gamma, beta []float32) kernels.LayerNorm {
	rows, cols := len(x)/len(gamma), len(gamma)
	return kernels.LayerNorm{
		X: l.put("X", x), Gamma: l.put("Gamma", gamma), Beta: l.put("Beta", beta),
		Y: l.result("Y", len(x)), Mean: l.result("Mean", rows), RStd: l.result("RStd", rows), Rows: rows, Cols: cols,
	}
}

func layerNormForward(l *lab) {
	for _, s := range normShapes {
		rows, cols := s[0], s[1]
		title := fmt.Sprintf("LayerNorm %d×%d", rows, cols)
		x, gamma, beta := normInput(l, rows, cols)
		op := l.norm(x, gamma, beta)
		l.do(title, func() error { return l.d.LayerNorm(op) }, op.Y, op.Mean, op.RStd)
		y, mean, rstd := layerNorm(wide(x), wide(gamma), wide(beta), rows, cols)
		l.near(title+": Y", l.read(op.Y), y, 0x1p-18)
		l.near(title+": Mean", l.read(op.Mean), mean, 0x1p-18)
		l.near(title+": RStd", l.read(op.RStd), rstd, 0x1p-18)
		l.drop()
	}
}

// layerNormRows checks that a row does not depend on the other rows.
func layerNormRows(l *lab) {
	const rows, cols = 9, 33
	x, gamma, beta := normInput(l, rows, cols)
	normalised := func(x []float32) []float32 {
		op := l.norm(x, gamma, beta)
		l.do("LayerNorm", func() error { return l.d.LayerNorm(op) }, op.Y, op.Mean, op.RStd)
		return l.read(op.Y)
	}
	all := normalised(x)
	for r := range rows {
		l.exactly(fmt.Sprintf("LayerNorm of row %d alone", r), normalised(x[r*cols:][:cols]), all[r*cols:][:cols])
		l.drop()
	}
}

func layerNormBackward(l *lab) {
	for _, s := range normShapes {
		for form := range 3 {
			rows, cols := s[0], s[1]
			if cols == 1 {
				continue // x does not affect this form
			}
			title := fmt.Sprintf("LayerNormBackward %d×%d, form %d", rows, cols, form)
			x, gamma, beta := normInput(l, rows, cols)
			for i := range x { // a scale that differences can resolve
				x[i] = float32(i/cols%2) + l.normal(1, 1)[0]
			}
			dy := l.normal(rows*cols, 1)
			_, mean, rstd := layerNorm(wide(x), wide(gamma), wide(beta), rows, cols)
			op := kernels.LayerNormBackward{
				DY: l.put("DY", dy), X: l.put("X", x), Gamma: l.put("Gamma", gamma),
				Mean: l.put("Mean", narrow(mean)), RStd: l.put("RStd", narrow(rstd)),
				Rows: rows, Cols: cols,
				AccumulateGamma: form == 1, AccumulateBeta: form == 2,
			}
			var beforeGamma, beforeBeta []float32
			op.DX = l.result("DX", rows*cols)
			op.DGamma, beforeGamma = l.sum("DGamma", cols, op.AccumulateGamma)
			op.DBeta, beforeBeta = l.sum("DBeta", cols, op.AccumulateBeta)
			l.do(title, func() error { return l.d.LayerNormBackward(op) }, op.DX, op.DGamma, op.DBeta)
			g, b, d := wide(gamma), wide(beta), wide(dy)
			loss := func(x, gamma, beta []float64) float64 {
				y, _, _ := layerNorm(x, gamma, beta, rows, cols)
				return dot(y, d)
			}
			l.slopes(title+": DX", l.read(op.DX), nil, wide(x), func(x []float64) float64 { return loss(x, g, b) })
			l.slopes(title+": DGamma", l.read(op.DGamma), beforeGamma, g, func(g []float64) float64 { return loss(wide(x), g, b) })
			l.slopes(title+": DBeta", l.read(op.DBeta), beforeBeta, b, func(b []float64) float64 { return loss(wide(x), g, b) })

			// A gradient computed alone equals the one computed with the others.
			alone := op
			alone.AccumulateGamma, alone.AccumulateBeta = false, false
			alone.DGamma, alone.DBeta = kernels.Buffer{}, kernels.Buffer{}
			alone.DX = l.result("DX", rows*cols)
			l.do(title, func() error { return l.d.LayerNormBackward(alone) }, alone.DX)
			l.exactly(title+": DX alone", l.read(alone.DX), l.read(op.DX))
			if form == 0 {
				alone.DX, alone.DBeta = kernels.Buffer{}, l.result("DBeta", cols)
				l.do(title, func() error { return l.d.LayerNormBackward(alone) }, alone.DBeta)
				l.exactly(title+": DBeta alone", l.read(alone.DBeta), l.read(op.DBeta))
				alone.DGamma, alone.DBeta = l.result("DGamma", cols), kernels.Buffer{}
				l.do(title, func() error { return l.d.LayerNormBackward(alone) }, alone.DGamma)
				l.exactly(title+": DGamma alone", l.read(alone.DGamma), l.read(op.DGamma))
			}
			l.drop()
		}
	}
}

// narrow converts to float32.
func narrow(x []float64) []float32 {
	y := make([]float32, len(x))
	for i, v := range x {
		y[i] = float32(v)
	}
	return y
}
