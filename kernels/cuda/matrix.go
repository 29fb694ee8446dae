package cuda

import (
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/kernels/cuda/driver"
)

// MatMul computes the product with the arithmetic of Config.Products, by Config.Library if it is
// set.
func (d *Device) MatMul(op kernels.MatMul) error {
	o := d.begin("MatMul", d.checks.MatMul(op))
	o.matmul(product{
		a: o.at(op.A), b: o.at(op.B), c: o.at(op.C), bias: o.at(op.Bias), m: op.M, n: op.N, k: op.K,
		transA: op.TransA, transB: op.TransB, accumulate: op.Accumulate,
	})
	return o.end()
}

// product is a matrix product of operands at addresses.
type product struct {
	a, b, c, bias              uint64
	alive                      uint64 // address of a float32 for each row of op(B); a row counts as zeros if its float32 is 0. The address is 0 if all rows count
	m, n, k                    int
	transA, transB, accumulate bool
}

func (o *operation) matmul(p product) {
	const side = 64
	o.fits(p.m, p.n, p.k)
	if o.device.library != nil && p.alive == 0 {
		o.multiply(p)
		return
	}
	kernel, threads := "matmul", 256
	if o.device.products == BFloat16 {
		kernel, threads = "matmul_bf16", 128
	}
	o.launch(kernel, (p.n+side-1)/side, (p.m+side-1)/side, threads, p.c, p.a, p.b, p.bias, p.alive, uint64(p.m), uint64(p.n), uint64(p.k),
		flag(p.transA), flag(p.transB), flag(p.accumulate))
}

// multiply passes a product to the library.
func (o *operation) multiply(p product) {
	if o.err == nil {
		o.err = o.device.library.Multiply(driver.Multiply{
			A: driver.Addr(p.a), B: driver.Addr(p.b), C: driver.Addr(p.c), M: p.m, N: p.n, K: p.k,
			TransA: p.transA, TransB: p.transB, Accumulate: p.accumulate, BFloat16: o.device.products == BFloat16,
		})
	}
	if p.bias != 0 {
		o.each("add_row", p.m*p.n, p.c, p.bias, uint64(p.m)*uint64(p.n), uint64(p.n))
	}
}

// AddRow adds b to each row of x.
func (d *Device) AddRow(x, b kernels.Buffer, rows, cols int) error {
	o := d.begin("AddRow", d.checks.AddRow(x, b, rows, cols))
	o.fits(cols)
	o.each("add_row", x.N, o.at(x), o.at(b), uint64(x.N), uint64(cols))
	return o.end()
}

// SumRows sums the rows of x in ascending order.
func (d *Device) SumRows(dst, x kernels.Buffer, rows, cols int, accumulate bool) error {
	o := d.begin("SumRows", d.checks.SumRows(dst, x, rows, cols, accumulate))
	o.fits(rows, cols)
	o.each("sum_rows", cols, o.at(dst), o.at(x), uint64(rows), uint64(cols), flag(accumulate))
	return o.end()
}

// normThreads is the number of threads per row.
const normThreads = 128

// LayerNorm normalizes each row. It accumulates the mean and the variance in float64.
func (d *Device) LayerNorm(op kernels.LayerNorm) error {
	o := d.begin("LayerNorm", d.checks.LayerNorm(op))
	o.fits(op.Rows, op.Cols)
	o.line("norm", op.Rows, normThreads, o.at(op.Y), o.at(op.Mean), o.at(op.RStd), o.at(op.X), o.at(op.Gamma), o.at(op.Beta), uint64(op.Cols))
	return o.end()
}

// LayerNormBackward works row by row; it sums DGamma and DBeta over rows in ascending order.
func (d *Device) LayerNormBackward(op kernels.LayerNormBackward) error {
	o := d.begin("LayerNormBackward", d.checks.LayerNormBackward(op))
	o.fits(op.Rows, op.Cols)
	dy, x, mean, rstd := o.at(op.DY), o.at(op.X), o.at(op.Mean), o.at(op.RStd)
	if op.DX != (kernels.Buffer{}) {
		o.line("norm_grad", op.Rows, normThreads, o.at(op.DX), dy, x, o.at(op.Gamma), mean, rstd, uint64(op.Cols))
	}
	if op.DGamma != (kernels.Buffer{}) || op.DBeta != (kernels.Buffer{}) {
		o.each("norm_gains", op.Cols, o.at(op.DGamma), o.at(op.DBeta), dy, x, mean, rstd, uint64(op.Rows), uint64(op.Cols),
			flag(op.AccumulateGamma), flag(op.AccumulateBeta))
	}
	return o.end()
}

// Embed looks up the tokens' rows and adds the rows of their positions.
func (d *Device) Embed(op kernels.Embed) error {
	o := d.begin("Embed", d.checks.Embed(op))
	o.fits(op.Tokens, op.Width, op.Vocabulary)
	o.inRange("IDs", op.IDs, op.Vocabulary)
	o.each("embed", op.X.N, o.at(op.X), o.at(op.IDs), o.at(op.Table), o.at(op.Positions), uint64(op.X.N), uint64(op.Width))
	return o.end()
}

// EmbedBackward adds the gradients of the tokens in ascending order.
func (d *Device) EmbedBackward(op kernels.EmbedBackward) error {
	o := d.begin("EmbedBackward", d.checks.EmbedBackward(op))
	o.fits(op.Tokens, op.Width, op.Vocabulary)
	o.inRange("IDs", op.IDs, op.Vocabulary)
	table, positions, dx := o.at(op.DTable), o.at(op.DPositions), o.at(op.DX)
	if table != 0 {
		if !op.AccumulateTable {
			o.zero(table, op.DTable.N)
		}
		o.line("embed_grad", op.Tokens, 256, table, o.at(op.IDs), dx, uint64(op.Tokens), uint64(op.Width))
	}
	if positions != 0 {
		if !op.AccumulatePositions {
			o.zero(positions, op.DPositions.N)
		}
		o.each("sum", op.DX.N, positions, positions, dx, uint64(op.DX.N))
	}
	return o.end()
}
