package placement

// field is what a search knows of a problem before it begins. Searchers share it.
type field struct {
	buffers []fieldBuffer
	columns [][]int32 // by column, the buffers that are alive there
	load    []int64   // by column, their bytes
	crossed []int32   // by column, how many buffers' lives reach over its end
}

// fieldBuffer is a buffer of a field.
type fieldBuffer struct {
	size, align int64
	spans       []span
	whole       span    // from the first column to the last
	over        []word  // its columns
	near        []int32 // all that share a column with it
	length      float64 // of its life without gaps, in time
	columns     int     // of its life without gaps
}

// word is 64 columns of a set.
type word struct {
	at   int32
	bits uint64
}

// Limits of what is searched: above them a node costs too much for a search to get
// anywhere.
const (
	maxCells = 1 << 21 // sum over buffers of their columns
	maxPairs = 1 << 22 // of buffers that share a column, each counted from both sides
)

// newField returns nil for a problem beyond the limits.
func newField(g *grid) *field {
	f := &field{
		buffers: make([]fieldBuffer, len(g.problem.Buffers)),
		columns: make([][]int32, g.columns),
		load:    g.load,
		crossed: make([]int32, g.columns),
	}
	cells := 0
	births := make([][]int32, g.columns) // the buffers that have a span which begins there
	for i := range f.buffers {
		b := &f.buffers[i]
		p := &g.problem.Buffers[i]
		b.size, b.align, b.spans = p.Size, p.Align, g.of(int32(i))
		b.length = float64(g.duration(int32(i)))
		for _, gap := range p.Gaps {
			b.length -= float64(gap.Upper - gap.Lower)
		}
		for _, s := range b.spans {
			b.columns += int(s.upper - s.lower)
		}
		if cells += b.columns; cells > maxCells {
			return nil
		}
		b.whole = span{b.spans[0].lower, b.spans[len(b.spans)-1].upper}
		for c := b.whole.lower; c < b.whole.upper-1; c++ {
			f.crossed[c]++
		}
		for _, s := range b.spans {
			births[s.lower] = append(births[s.lower], int32(i))
			for c := s.lower; c < s.upper; c++ {
				f.columns[c] = append(f.columns[c], int32(i))
				if k := len(b.over); k == 0 || b.over[k-1].at != c/64 {
					b.over = append(b.over, word{at: c / 64})
				}
				b.over[len(b.over)-1].bits |= 1 << (c % 64)
			}
		}
	}
	return f.meet(births)
}

// meet finds out who shares a column with whom.
func (f *field) meet(births [][]int32) *field {
	pairs := 0
	met := make([]int32, len(f.buffers)) // the last buffer that met this one, from 1
	for i := range f.buffers {
		b := &f.buffers[i]
		met[i] = int32(i) + 1
		meet := func(all []int32) {
			for _, x := range all {
				if met[x] != int32(i)+1 {
					met[x] = int32(i) + 1
					b.near = append(b.near, x)
				}
			}
		}
		for _, s := range b.spans {
			meet(f.columns[s.lower])
			for c := s.lower + 1; c < s.upper; c++ {
				meet(births[c])
			}
		}
		if pairs += len(b.near); pairs > maxPairs {
			return nil
		}
	}
	return f
}
