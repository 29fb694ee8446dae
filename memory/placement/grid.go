package placement

// grid is a problem as planners see it. Its columns are the moments that matter: the
// largest sets of buffers that are alive together, in order of time. Two buffers are
// alive together where they share a column.
type grid struct {
	problem *Problem
	columns int
	spans   []span  // of buffer after buffer
	first   []int32 // the spans of buffer b are spans[first[b]:first[b+1]]
	load    []int64 // by column, the bytes alive
	bound   int64   // the most of them
	fixed   []int64 // by buffer, where it must lie if not below 0; or nil
	full    []int32 // by column, at how many columns before it the load is the bound
}

// span is a range of columns, half open.
type span struct{ lower, upper int32 }

func newGrid(p *Problem) *grid {
	n := len(p.Buffers)
	g := &grid{problem: p, first: make([]int32, n+1)}
	for i := range p.Buffers {
		g.first[i+1] = g.first[i] + int32(1+len(p.Buffers[i].Gaps))
	}
	g.spans = make([]span, g.first[n])
	next := append([]int32(nil), g.first...) // the span that a buffer is in, or enters next
	growing := false                         // no buffer has died since the last birth
	live := int64(0)
	for _, c := range p.changes() {
		s := &g.spans[next[c.buffer]]
		if c.birth {
			live += p.Buffers[c.buffer].Size
			if !growing {
				growing = true
				g.columns++
				g.load = append(g.load, 0)
			}
			s.lower = int32(g.columns - 1)
			g.load[g.columns-1] = live
			g.bound = max(g.bound, live)
			continue
		}
		live -= p.Buffers[c.buffer].Size
		growing = false
		s.upper = int32(g.columns)
		next[c.buffer]++
	}
	g.full = make([]int32, g.columns+1)
	for c, load := range g.load {
		g.full[c+1] = g.full[c]
		if load == g.bound {
			g.full[c+1]++
		}
	}
	return g
}

// of returns the spans of a buffer.
func (g *grid) of(buffer int32) []span { return g.spans[g.first[buffer]:g.first[buffer+1]] }
