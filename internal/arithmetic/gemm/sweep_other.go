//go:build !(amd64 || arm64) || purego

package gemm

// This file implements the functions of sweep_asm.go in plain Go.

func (p *Multiplier) sweep(rows, depth, width int, a tile, b block, c, _ []float32, stride int, add bool) {
	sweepPlain(rows, depth, width, a, b, c, stride, add)
}

func (p *Multiplier) transpose(dst []float32, dstStride int, src []float32, srcStride, rows, cols int) {
	transposePlain(dst, dstStride, src, srcStride, rows, cols)
}

func (p *Multiplier) copyRows(dst []float32, dstStride int, src []float32, srcStride, rows, cols int) {
	copyPlain(dst, dstStride, src, srcStride, rows, cols)
}

func (p *Multiplier) spread(dst []float32, dstPanel int, src []float32, _, panel int) {
	spreadPlain(dst, dstPanel, src, panel)
}
