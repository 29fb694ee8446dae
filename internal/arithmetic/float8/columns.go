package float8

// lanes is the number of columns that are transposed at a time.
const lanes = 16

// columnStrip is the part of a source that is quantized at a time: at most strip rows of
// sixteen columns, which become rows of codes.
type columnStrip struct {
	format     *Format
	x          []float32 // sixteen columns
	stride     int
	rows, cols int      // rows is a multiple of BlockMX; cols is the number of columns in use
	random     []uint32 // lanes numbers for each row, or nil
	dst        []byte
	dstStride  int
	met        Tally
}

// columnScales holds a strip's scales: inverses for decoding in Rows128, and codes in MX32 and
// NV16.
type columnScales struct {
	inverses [lanes]float32
	codes    [lanes][strip / BlockNV]byte
}

// stripRoom is scratch memory that all strips share: random numbers, and codes that will be
// streamed to memory.
type stripRoom struct {
	draws  [strip * lanes]uint32
	codes  [lanes * strip]byte
	stream bool
}

// QuantizeColumns quantizes the columns of x in the range [from, to) as rows of m. In Tiles128 the range must
// consist of whole tiles. In PerTensor and NV16, the call with from = 0 also sets the factor of the whole
// matrix.
func (s Set) QuantizeColumns(m *Matrix, x []float32, rule *Rule, from, to int) (t Tally) {
	if from == to {
		return t
	}
	rows, cols := m.Cols, m.Rows // of x
	wide := lanes
	if m.Scaling == Tiles128 {
		wide = BlockTile
	}
	var room stripRoom
	var random []uint32
	far := s != Portable && len(x) > beyondL2
	room.stream = s != Portable && len(x) > beyondL3 && streams(m.Codes, m.Stride)
	scale := m.matrixScale(rule, from, &t)
	for r := 0; r < rows; r += strip {
		n := min(strip, rows-r)
		for p := from; p < to; p += panel { // all columns of a panel stay in a cache
			stop := min(p+panel, to)
			if far {
				s.read(x[r*cols+p:], cols, n, stop-p)
			}
			for c := p; c < stop; c += wide {
				end := min(c+wide, stop)
				if m.Scaling == Tiles128 {
					scale = s.tile(m, x[r*cols+c:], cols, n, end-c, rule, c, r, &t)
				}
				for j := c; j < end; j += lanes {
					k := min(lanes, end-j)
					if rule.Random != nil {
						random = room.draws[:]
						s.fillRows(random, n, k, rule.Random, r*cols+j, cols)
					}
					met, ok := s.quickStrip(m, x[r*cols+j:], random, cols, n, k, rule, scale, j, r, &room)
					if !ok {
						met = s.strip(m, x, random, n, k, rule, scale, j, r)
					}
					t.Merge(met)
				}
			}
		}
	}
	if room.stream {
		fence()
	}
	return t
}

// strip quantizes n×k elements of x, which begin at the given row and column, as k rows of m.
func (s Set) strip(m *Matrix, x []float32, random []uint32, n, k int, rule *Rule, scale float32, col, row int) (t Tally) {
	var piece [lanes * strip]float32
	cols := m.Rows
	s.transpose(piece[:], strip, x[row*cols+col:], cols, n, k)
	for l := range k {
		var transposed []uint32
		if random != nil {
			var room [strip]uint32
			transposed = room[:n]
			for i := range transposed {
				transposed[i] = random[i*lanes+l]
			}
		}
		t.Merge(s.segment(m, piece[l*strip:][:n], transposed, rule, scale, col+l, row))
	}
	return t
}

// quickStrip is strip in assembly. It encodes a padded copy if columns are missing or the last
// group is incomplete. ok is false in Portable, and if the assembly cannot encode the strip.
func (s Set) quickStrip(m *Matrix, x []float32, random []uint32, stride, n, k int, rule *Rule, scale float32, col, row int, room *stripRoom) (t Tally, ok bool) {
	if s == Portable {
		return t, false
	}
	const group = BlockMX
	var scales columnScales
	if k == lanes && n%group == 0 {
		c := columnStrip{m.Format, x, stride, n, k, random, m.from(col, row), m.Stride, t}
		bytes := n
		if m.Scaling == NV16 {
			bytes = n / 2
		}
		whole := room.stream && bytes%line == 0
		if whole {
			c.dst, c.dstStride = room.codes[:], strip
		}
		if ok = s.columns(&c, &scales, m, rule, scale); ok && whole {
			stream(m.from(col, row), m.Stride, room.codes[:], strip, lanes, bytes)
		}
		t = c.met
	} else {
		t, ok = s.edgeStrip(m, &scales, x, random, stride, n, k, rule, scale, col, row)
	}
	if !ok {
		return t, false
	}
	for l := range k {
		switch m.Scaling {
		case Rows128:
			m.factors(col+l, row)[0] = scales.inverses[l]
		case MX32, NV16:
			copy(m.scales(col+l, row), scales.codes[l][:blocksOf(n, m.Scaling.block())])
		}
	}
	return t, true
}

// edgeStrip is quickStrip for fewer than lanes columns or an incomplete last group, which it pads
// with zeros.
func (s Set) edgeStrip(m *Matrix, scales *columnScales, x []float32, random []uint32, stride, n, k int, rule *Rule, scale float32, col, row int) (Tally, bool) {
	const group = BlockMX
	var from [strip * lanes]float32
	var to [lanes * strip]byte
	for i := range n {
		copy(from[i*lanes:], x[i*stride:][:k])
	}
	c := columnStrip{m.Format, from[:], lanes, blocksOf(n, group) * group, k, random, to[:], strip, Tally{}}
	ok := s.columns(&c, scales, m, rule, scale)
	bytes := n
	if m.Scaling == NV16 {
		bytes = blocksOf(n, 2)
	}
	for l := range k {
		copy(m.from(col+l, row)[:bytes], to[l*strip:])
	}
	return c.met, ok
}
