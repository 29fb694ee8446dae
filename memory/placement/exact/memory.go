package exact

// memory knows parts of a problem that were found to be impossible. What is left to
// place of a part is which buffers, the lowest place of each, and the bound of its
// offset; how it came to that does not matter. Parts are told apart by a hash of 128
// bits. A new part takes the place of an old one where the table is full.
type memory struct {
	columns []hash // by column, the sum over the buffers not placed whose life begins there
	parts   []part
}

type hash struct{ a, b uint64 }

type part struct {
	hash   hash
	failed int32 // the column that failed last
}

// maxParts is how many parts a memory holds.
const maxParts = 1 << 16

func newMemory(buffers, columns int) *memory {
	size := 64
	for size < 64*buffers && size < maxParts {
		size *= 2
	}
	return &memory{columns: make([]hash, columns), parts: make([]part, size)}
}

func (m *memory) clear() {
	clear(m.columns)
	clear(m.parts)
}

// toggle adds a buffer as it is now to what is left, or takes it out.
func (s *searcher) toggle(x int32) {
	h := uint64(x+1)*0x9e3779b97f4a7c15 ^ uint64(s.low[x])*0xbf58476d1ce4e5b9 ^ (uint64(s.least[x])+1)*0x94d049bb133111eb
	h = (h ^ h>>29) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>32) * 0x94d049bb133111eb
	sum := &s.dead.columns[s.buffers[x].whole.Lower]
	sum.a ^= h ^ h>>31
	h = (h ^ h>>30) * 0xff51afd7ed558ccd
	sum.b ^= h ^ h>>33
}

// left returns the hash of what is left within columns.
func (m *memory) left(lower, upper int32) (sum hash) {
	for _, h := range m.columns[lower:upper] {
		sum.a ^= h.a
		sum.b ^= h.b
	}
	return sum
}

// of returns where a part is, or would be.
func (m *memory) of(h hash) *part { return &m.parts[h.a%uint64(len(m.parts))] }
