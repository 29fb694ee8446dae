package product

// streams says whether B is read as a stream: where it is not packed although
// several tiles of A read it, is not small, and its rows can be fetched in time. With few
// tiles C goes to and fro for each block as often as the stream saves a wait.
func (p *Product) streams(m, n, k int, b Matrix) bool {
	const few, short = 4, 48
	return p.Instructions == AVX512 && m > few*shapes[p.Instructions].rows && !small(n, k, b) && (together(n, b) || p.fetchable(m, n) >= short)
}

// together says whether the first n columns of b are all of it or nearly so.
func together(n int, b Matrix) bool { return b.Stride <= n+n/8 }

// fetchable returns the rows of B, which are apart, that the tiles of m×n of C fetch:
// all but the first one of them a row in each panel.
func (p *Product) fetchable(m, n int) int {
	shape := shapes[p.Instructions]
	return (m - 1) / shape.rows * ((n + shape.panel - 1) / shape.panel)
}

// streamed is Multiply for few rows and a B that is not packed. A block of B is a few
// of its rows, whole: while the tiles of A go over one block, they fetch the next
// one, line after line, at an even pace. The first block is fetched by its first
// tile, panel after panel.
func (p *Product) streamed(m, n, k int, a, b Matrix, c []float32, stride int, accumulate bool) {
	shape := shapes[p.Instructions]
	tiles, panels := (m+shape.rows-1)/shape.rows, (n+shape.panel-1)/shape.panel
	most := 128 // measured
	if !together(n, b) {
		most = min(p.fetchable(m, n), most) / 8 * 8
	}
	for k0 := 0; k0 < k; {
		depth := share(k-k0, most, 8)
		block := block{data: b.From(k0, 0).Data, depth: b.Stride, panel: shape.panel}
		late := 0 // tiles that do not fetch the next block
		if k0 == 0 {
			late = 1
		}
		var next []float32
		if k0+depth < k {
			next = b.From(k0+depth, 0).Data
		}
		if together(n, b) {
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
			after := 0 // of the last tile the first
			if i0 += rows; i0 < m {
				after = i0 * stride
			}
			p.sweep(rows, depth, n, tile, block, c[at:], c[after:], stride, accumulate || k0 > 0)
		}
		k0 += depth
	}
}
