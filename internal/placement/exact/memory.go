package exact

// memory records parts of a problem that were found to be impossible. A part is identified by
// its unplaced buffers, the lowest possible offset of each, and the capacity; how the search
// reached it does not matter. Parts are distinguished by a 128-bit hash. If the table is full, a new part
// replaces an old one.
type memory struct {
	columns []hash // by column, the sum over the unplaced buffers whose lifetime begins there
	parts   []part
}

type hash struct{ a, b uint64 }

type part struct {
	hash   hash
	failed int32 // the column that failed last
}

// maxParts is the number of parts that a memory can hold.
const maxParts = 1 << 16

func newMemory(buffers, columns int) *memory {
	size := 64
	for size < 64*buffers && size < maxParts {
		size *= 2
	}
	return &memory{columns: make([]hash, columns), parts: make([]part, size)}
}

// toggle adds a buffer in its current state to the unplaced buffers, or removes it.
func (s *searcher) toggle(x int32) {
	h := uint64(x+1)*0x9e3779b97f4a7c15 ^ uint64(s.low[x])*0xbf58476d1ce4e5b9 ^ (uint64(s.least[x])+1)*0x94d049bb133111eb
	h = (h ^ h>>29) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>32) * 0x94d049bb133111eb
	sum := &s.dead.columns[s.buffers[x].whole.Lower]
	sum.a ^= h ^ h>>31
	h = (h ^ h>>30) * 0xff51afd7ed558ccd
	sum.b ^= h ^ h>>33
}

// left returns the hash of the unplaced buffers within a range of columns.
func (m *memory) left(lower, upper int32) (sum hash) {
	for _, h := range m.columns[lower:upper] {
		sum.a ^= h.a
		sum.b ^= h.b
	}
	return sum
}

// of returns the entry of a part in the table.
func (m *memory) of(h hash) *part { return &m.parts[h.a%uint64(len(m.parts))] }
