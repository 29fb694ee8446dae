package product

// packs says whether B is packed: where it is stored transposed, where so many tiles
// of A read it that a copy costs nothing beside them, where more than some read it and
// it does not stay in a cache as it lies, and where a few read it that is large,
// because jumps from row to row are slow far from the processor. Else a copy costs
// more than it saves. The figures are measured.
func (p *Product) packs(m, n, k int, b Matrix) bool {
	const few, some, many, large = 2, 6, 24, 1 << 20
	tiles := (m + shapes[p.Instructions].rows - 1) / shapes[p.Instructions].rows
	return b.Trans || tiles > many || tiles > some && !p.stays(n, k, b) || tiles > few && n*k > large
}

// stays says whether a block of b stays in a cache as it lies, once the first tile of A
// has read it. Short tiles come back to it too often, and want it as near as it gets.
func (p *Product) stays(n, k int, b Matrix) bool {
	const most = maxDepth * maxWidth // as much memory as a packed block has
	return small(n, k, b) && p.Instructions != Portable || min(k, maxDepth)*b.Stride <= most && p.Instructions == AVX512
}

// small says whether k×n elements of b lie together and are so few that what is
// fetched early is fetched in vain.
func small(n, k int, b Matrix) bool {
	const most = 16 << 10
	return n*k <= most && together(n, b)
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
	near         bool // in a cache: the sweep need not fetch it

	// What the sweep fetches early: two cache lines at each l of each panel, from
	// number p·aheadPanel + l·aheadStep on. nil: its own next panel, unless it is near.
	ahead                 []float32
	aheadStep, aheadPanel int
}

// directWidth is the number of columns of C up to which a tile of A is read where
// it lies.
const directWidth = 128

// tile returns the first rows of a, packed where that pays. It ends with the next
// call.
func (p *Product) tile(a Matrix, rows, depth, width int) tile {
	const close = 8 << 10 // elements that a tile may lie between
	if p.Instructions == Portable || width <= directWidth || rows < 4 || a.Trans && depth*a.Stride <= close {
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

// direct returns a as it lies.
func direct(a Matrix) tile {
	row, depth := a.steps()
	return tile{a.Data, row, depth}
}

// block returns the first depth×width elements of b, packed or as they lie. It ends
// with the next call.
func (p *Product) block(b Matrix, depth, width int, pack bool) block {
	panel := shapes[p.Instructions].panel
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

// gather packs a block of a matrix that is stored transposed: 8 columns at a time,
// and of a panel only as much as fits into the first-level cache.
func (p *Product) gather(b Matrix, depth, width, panel int) {
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
