package gemm

import "github.com/weir-ml/weir/internal/arithmetic/vector"

// shouldPack reports whether to pack B: if it is stored transposed; if it is read by so many
// tiles of A that the copy is cheap in comparison; if it is read by several tiles and does not
// stay in a cache in place; or if it is read by a few tiles and is large, because strided access
// is slow beyond the near caches. Otherwise a copy costs more than it saves. The thresholds are
// measured.
func (p *Multiplier) shouldPack(m, n, k int, b Matrix) bool {
	const few, some, many, large = 2, 6, 24, 1 << 20
	tiles := (m + shapes[p.Set].rows - 1) / shapes[p.Set].rows
	return b.Trans || tiles > many || tiles > some && !p.staysCached(n, k, b) || tiles > few && n*k > large
}

// staysCached reports whether a block of b that is read in place stays in a cache once the first
// tile of A has read it. Short tiles reuse a block so often that it has to be packed into a cache
// close to the processor.
func (p *Multiplier) staysCached(n, k int, b Matrix) bool {
	const most = maxDepth * maxWidth // the size of a packed block
	return small(n, k, b) && p.Set != vector.Portable || min(k, maxDepth)*b.Stride <= most && p.Set == vector.AVX512
}

// small reports whether k×n elements of b are contiguous and so few that prefetching them has
// no benefit.
func small(n, k int, b Matrix) bool {
	const most = 16 << 10
	return n*k <= most && contiguous(n, b)
}

// tile is a tile of A: element (i, l) is data[i·row + l·depth].
type tile struct {
	data       []float32
	row, depth int
}

// block is a block of B: row l of panel p is at data[p·panel + l·depth].
type block struct {
	data         []float32
	depth, panel int
	near         bool // in a cache, so the sweep need not prefetch it

	// For each l of each panel, the sweep prefetches two cache lines that begin at element
	// p·aheadPanel + l·aheadStep. If ahead is nil, it prefetches its own next panel, unless near
	// is set.
	ahead                 []float32
	aheadStep, aheadPanel int
}

// directWidth is the number of columns of C up to which a tile of A is read in place.
const directWidth = 128

// tile returns the first rows×depth elements of a, packed if that pays off. It is valid until the
// next call to tile.
func (p *Multiplier) tile(a Matrix, rows, depth, width int) tile {
	const close = 8 << 10 // the largest extent of a tile that is read in place, in elements
	if p.Set == vector.Portable || width <= directWidth || rows < 4 || a.Trans && depth*a.Stride <= close {
		return direct(a)
	}
	if a.Trans {
		p.copyRows(p.a, rows, a.Data, a.Stride, depth, rows)
		return tile{p.a, 1, rows}
	}
	if rows < 8 {
		return direct(a)
	}
	p.transpose(p.a, rows, a.Data, a.Stride, 8, depth)
	if rows > 8 {
		p.transpose(p.a[rows-8:], rows, a.Data[(rows-8)*a.Stride:], a.Stride, 8, depth)
	}
	return tile{p.a, 1, rows}
}

// direct returns a tile that refers to a in place.
func direct(a Matrix) tile {
	row, depth := a.steps()
	return tile{a.Data, row, depth}
}

// block returns the first depth×width elements of b, packed or in place. It is valid until the
// next call to block.
func (p *Multiplier) block(b Matrix, depth, width int, pack bool) block {
	panel := shapes[p.Set].panel
	if !pack {
		return block{data: b.Data, depth: b.Stride, panel: panel}
	}
	if b.Trans {
		p.gather(b, depth, width, panel)
	} else {
		for l := range depth {
			p.spread(p.b[l*panel:], panel*depth, b.Data[l*b.Stride:][:width], b.Stride, panel)
		}
	}
	return block{data: p.b, depth: panel, panel: panel * depth, near: true}
}

// gather packs a block of a matrix that is stored transposed, 8 columns at a time, and never more of a panel at
// a time than fits in the first-level cache.
func (p *Multiplier) gather(b Matrix, depth, width, panel int) {
	const fits = 64
	for j := 0; j < width; j += panel {
		for l := 0; l < depth; l += fits {
			to := p.b[j*depth+l*panel:]
			for i := 0; i < min(panel, width-j); i += 8 {
				p.transpose(to[i:], panel, b.Data[(j+i)*b.Stride+l:], b.Stride, min(8, panel, width-j-i), min(fits, depth-l))
			}
		}
	}
}
