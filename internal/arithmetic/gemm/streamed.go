package gemm

import "github.com/weir-ml/weir/internal/arithmetic/vector"

// shouldStream reports whether to read B as a stream: if it is not packed although several tiles
// of A read it, is not small, and its rows can be prefetched in time. If there are few tiles,
// loading and storing C for each block costs as much as streaming saves. Only AVX-512 streams.
func (p *Multiplier) shouldStream(m, n, k int, b Matrix) bool {
	const few, short = 4, 48
	return p.Set == vector.AVX512 && m > few*shapes[p.Set].rows && !small(n, k, b) && (contiguous(n, b) || p.fetchable(m, n) >= short)
}

// contiguous reports whether the first n columns of b are all, or nearly all, of its columns.
func contiguous(n int, b Matrix) bool { return b.Stride <= n+n/8 }

// fetchable returns how many rows of a non-contiguous B are prefetched by the tiles of an m×n C:
// every tile except the first prefetches one row in each panel.
func (p *Multiplier) fetchable(m, n int) int {
	shape := shapes[p.Set]
	return (m - 1) / shape.rows * ((n + shape.panel - 1) / shape.panel)
}

// multiplyStreamed is Multiply for few rows and a B that is not packed. A block consists of a few
// whole rows of B: while the tiles of A sweep over one block, they prefetch the next one, line by
// line, at an even pace. The first block is prefetched panel by panel, by the first tile that
// reads it.
func (p *Multiplier) multiplyStreamed(m, n, k int, a, b Matrix, c []float32, stride int, accumulate bool) {
	shape := shapes[p.Set]
	tiles, panels := (m+shape.rows-1)/shape.rows, (n+shape.panel-1)/shape.panel
	most := 128 // measured
	if !contiguous(n, b) {
		most = min(p.fetchable(m, n), most) / 8 * 8
	}
	for k0 := 0; k0 < k; {
		depth := share(k-k0, most, 8)
		block := block{data: b.From(k0, 0).Data, depth: b.Stride, panel: shape.panel}
		late := 0 // number of tiles that do not prefetch the next block
		if k0 == 0 {
			late = 1
		}
		var next []float32
		if k0+depth < k {
			next = b.From(k0+depth, 0).Data
		}
		if contiguous(n, b) {
			steps := (tiles - late) * panels * depth
			block.aheadStep = (min(depth, k-k0-depth)*b.Stride + steps - 1) / steps
			block.aheadPanel = block.aheadStep * depth
		} else {
			block.aheadStep, block.aheadPanel = (n+depth-1)/depth, b.Stride
		}
		for i0, t := 0, 0; i0 < m; t++ {
			rows := share(m-i0, shape.rows, 1)
			block.ahead = nil
			if at := (t - late) * panels * block.aheadPanel; at >= 0 && at < len(next) {
				block.ahead = next[at:]
			}
			tile, at := p.tile(a.From(i0, k0), rows, depth, n), i0*stride
			after := 0 // the last tile is followed by the first one
			if i0 += rows; i0 < m {
				after = i0 * stride
			}
			p.sweep(rows, depth, n, tile, block, c[at:], c[after:], stride, accumulate || k0 > 0)
		}
		k0 += depth
	}
}
