package exact

import "github.com/weir-ml/weir/memory/placement"

// field is the part of a problem that is constant during a search, and is shared by searchers.
type field struct {
	problem *placement.Problem
	buffers []tenant
	rows    [][]int32 // by column, its live buffers
	load    []int64   // by column, their bytes
	crossed []int32   // by column, the number of lifetimes that extend beyond it
	work    int64     // approximate number of cells visited when all buffers are placed
	nodes   int64     // number of nodes spent to make the field
}

// tenant is a buffer of a field.
type tenant struct {
	size, align int64
	spans       []placement.Span
	whole       placement.Span // from the first column to the last
	over        []word         // its columns
	near        []int32        // the other buffers that share a column with it
	length      float64        // lifetime without its gaps, in time
	columns     int            // lifetime without its gaps, in columns
}

// word is a set of 64 columns.
type word struct {
	at   int32
	bits uint64
}

// Limits of the search. Beyond them, placing a buffer takes so long that a search is useless.
const (
	maxCells = 1 << 21 // live buffers, over all columns
	maxPairs = 1 << 22 // pairs of buffers that share a column, each counted twice
	maxBytes = 1 << 60 // of all buffers: no sum overflows int64
)

// newField returns the field of a problem, or nil if the problem is beyond the limits or budget nodes are
// not enough to make the field.
func newField(p *placement.Problem, budget int64) *field {
	budget = min(budget, maxPairs)
	spans, load := p.Columns()
	f := &field{
		problem: p,
		buffers: make([]tenant, len(p.Buffers)),
		rows:    make([][]int32, len(load)),
		load:    load,
		crossed: make([]int32, len(load)),
	}
	cells, bytes := int64(0), int64(0)
	births := make([][]int32, len(load)) // by column, the buffers with a span that begins there
	for i := range f.buffers {
		b, from := &f.buffers[i], &p.Buffers[i]
		b.size, b.align, b.spans = from.Size, from.Align, spans[i]
		b.length = float64(uint64(from.Upper) - uint64(from.Lower))
		for _, gap := range from.Gaps {
			b.length -= float64(uint64(gap.Upper) - uint64(gap.Lower))
		}
		for _, s := range b.spans {
			b.columns += int(s.Upper - s.Lower)
		}
		cells += int64(b.columns)
		bytes += min(b.size, maxBytes)
		if cells > maxCells || cells > budget*cellsPerNode || bytes > maxBytes {
			return nil
		}
		b.whole = placement.Span{Lower: b.spans[0].Lower, Upper: b.spans[len(b.spans)-1].Upper}
		for c := b.whole.Lower; c < b.whole.Upper-1; c++ {
			f.crossed[c]++
		}
		for _, s := range b.spans {
			births[s.Lower] = append(births[s.Lower], int32(i))
			for c := s.Lower; c < s.Upper; c++ {
				f.rows[c] = append(f.rows[c], int32(i))
				if k := len(b.over); k == 0 || b.over[k-1].at != c/64 {
					b.over = append(b.over, word{at: c / 64})
				}
				b.over[len(b.over)-1].bits |= 1 << (c % 64)
			}
		}
	}
	f.work = cells * int64(len(f.buffers))
	pairs := f.meet(births, min(maxPairs, budget*cellsPerNode-cells))
	if pairs < 0 {
		return nil
	}
	f.nodes = (cells + pairs) / cellsPerNode
	return f
}

// meet finds the pairs of buffers that share a column. It returns the number of pairs, each
// counted twice, or -1 if it exceeds most.
func (f *field) meet(births [][]int32, most int64) (pairs int64) {
	met := make([]int, len(f.buffers)) // by buffer, the last buffer that met it, plus 1
	for i := range f.buffers {
		b := &f.buffers[i]
		met[i] = i + 1
		meet := func(all []int32) {
			for _, x := range all {
				if met[x] != i+1 {
					met[x] = i + 1
					b.near = append(b.near, x)
				}
			}
		}
		for _, s := range b.spans {
			meet(f.rows[s.Lower])
			for c := s.Lower + 1; c < s.Upper; c++ {
				meet(births[c])
			}
		}
		if pairs += int64(len(b.near)); pairs > most {
			return -1
		}
	}
	return pairs
}
