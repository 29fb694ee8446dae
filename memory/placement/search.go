package placement

import (
	"cmp"
	"context"
	"math"
	"slices"
)

// outcome is how a search ended.
type outcome uint8

const (
	gaveUp     outcome = iota // neither, within the limits
	solved                    // there is a layout
	impossible                // there is none
)

// searcher looks for a layout within a capacity, depth first.
type searcher struct {
	grid     *grid
	ctx      context.Context
	capacity int64
	left     int64 // nodes

	near  [][]int32 // by buffer, those alive with it at some time
	order []int32   // buffers by rank
	rank  []int32

	placed  []bool
	offset  []int64 // by buffer, least there is above what is placed
	floor   []int64 // by column
	rest    []int64 // by column, bytes not placed
	members [][]int32

	raised []saved
	floors []saved
	nodes  int64
}

type saved struct {
	at  int32
	was int64
}

// search looks for a layout of at most a capacity. It visits at most budget nodes, and
// returns how many it did.
func search(ctx context.Context, g *grid, capacity, budget int64, seed uint64) (offsets []int64, o outcome, nodes int64) {
	if g.bound > capacity {
		return nil, impossible, 0
	}
	s := &searcher{grid: g, ctx: ctx, capacity: capacity}
	n := len(g.problem.Buffers)
	s.members = make([][]int32, g.columns)
	for i := range n {
		for _, sp := range g.of(int32(i)) {
			for c := sp.lower; c < sp.upper; c++ {
				s.members[c] = append(s.members[c], int32(i))
			}
		}
	}
	s.near = make([][]int32, n)
	for i := range n {
		seen := map[int32]bool{int32(i): true}
		for _, sp := range g.of(int32(i)) {
			for c := sp.lower; c < sp.upper; c++ {
				for _, j := range s.members[c] {
					if !seen[j] {
						seen[j] = true
						s.near[i] = append(s.near[i], j)
					}
				}
			}
		}
	}
	most := make([]int64, n)
	for i := range most {
		for _, s := range g.of(int32(i)) {
			most[i] = max(most[i], slices.Max(g.load[s.lower:s.upper]))
		}
	}
	keys := []func(x, y int32) int{
		func(x, y int32) int { return -cmp.Compare(g.duration(x), g.duration(y)) },
		func(x, y int32) int { return -cmp.Compare(g.area(x), g.area(y)) },
		func(x, y int32) int { return -cmp.Compare(most[x], most[y]) },
	}
	orders := [][]int{{0, 1, 2}, {2, 1, 0}, {2, 0, 1}}
	for limit := int64(2 * n); ; limit *= 2 {
		for _, o := range orders {
			s.order = g.sorted(func(x, y int32) int {
				return cmp.Or(keys[o[0]](x, y), keys[o[1]](x, y), keys[o[2]](x, y))
			})
			s.left = limit
			s.reset()
			before := s.nodes
			out := s.visit(0, 0, 0, int32(g.columns))
			budget -= s.nodes - before
			if out != gaveUp {
				return s.offset, out, s.nodes
			}
			if budget <= 0 || ctx.Err() != nil {
				return nil, gaveUp, s.nodes
			}
		}
	}
}

func (s *searcher) reset() {
	n := len(s.near)
	s.rank = make([]int32, n)
	for r, i := range s.order {
		s.rank[i] = int32(r)
	}
	s.placed = make([]bool, n)
	s.offset = make([]int64, n)
	s.floor = make([]int64, s.grid.columns)
	s.rest = append([]int64(nil), s.grid.load...)
}

type choice struct {
	at   int64
	rank int32
}

func (s *searcher) visit(at int64, from int32, lower, upper int32) outcome {
	if s.left--; s.left <= 0 {
		return gaveUp
	}
	s.nodes++
	if s.nodes%1024 == 0 && s.ctx.Err() != nil {
		return gaveUp
	}
	var choices []choice
	height := int64(math.MaxInt64)
	for r, i := range s.order {
		if !s.placed[i] {
			choices = append(choices, choice{s.offset[i], int32(r)})
			height = min(height, s.offset[i]+s.grid.size(i))
		}
	}
	if len(choices) == 0 {
		return solved
	}
	slices.SortFunc(choices, func(x, y choice) int { return cmp.Or(cmp.Compare(x.at, y.at), cmp.Compare(x.rank, y.rank)) })
	for _, c := range choices {
		if c.at < at || c.at == at && c.rank < from {
			continue
		}
		if c.at >= height {
			break
		}
		i := s.order[c.rank]
		raised, floors := len(s.raised), len(s.floors)
		hatless := s.place(i)
		out := impossible
		if s.check(c.at) {
			out = s.visit(c.at, c.rank, lower, upper)
		}
		if out != impossible {
			return out
		}
		s.unplace(i, raised, floors)
		if hatless {
			break
		}
	}
	return impossible
}

func (s *searcher) place(i int32) (hatless bool) {
	hatless = true
	end := s.offset[i] + s.grid.size(i)
	s.placed[i] = true
	for _, j := range s.near[i] {
		if s.placed[j] {
			continue
		}
		hatless = false
		if s.offset[j] < end {
			s.raised = append(s.raised, saved{j, s.offset[j]})
			s.offset[j] = alignUp(end, s.grid.problem.Buffers[j].Align)
		}
	}
	for _, sp := range s.grid.of(i) {
		for c := sp.lower; c < sp.upper; c++ {
			s.floors = append(s.floors, saved{c, s.floor[c]})
			s.floor[c] = end
			s.rest[c] -= s.grid.size(i)
		}
	}
	return hatless
}

func (s *searcher) unplace(i int32, raised, floors int) {
	for k := len(s.raised) - 1; k >= raised; k-- {
		s.offset[s.raised[k].at] = s.raised[k].was
	}
	for k := len(s.floors) - 1; k >= floors; k-- {
		s.floor[s.floors[k].at] = s.floors[k].was
		s.rest[s.floors[k].at] += s.grid.size(i)
	}
	s.raised, s.floors = s.raised[:raised], s.floors[:floors]
	s.placed[i] = false
}

func (s *searcher) check(at int64) bool {
	for c, f := range s.floor {
		if s.rest[c] == 0 {
			continue
		}
		least := int64(math.MaxInt64)
		for _, i := range s.members[c] {
			if !s.placed[i] {
				least = min(least, s.offset[i])
			}
		}
		if max(f, at, least)+s.rest[c] > s.capacity {
			return false
		}
	}
	return true
}

// minimise looks for the least height below a given one. It returns the best layout it
// found, nil where it found none, and the height that no layout can be below as far as
// the search proved it.
func minimise(ctx context.Context, g *grid, height, budget int64, seed uint64) (offsets []int64, least, nodes int64) {
	least = g.bound
	for capacity := least; least < height && nodes < budget && ctx.Err() == nil; {
		found, o, n := search(ctx, g, capacity, (budget-nodes+1)/2, seed)
		nodes += n
		switch o {
		case solved:
			offsets, height = found, g.height(found)
		case impossible:
			least = capacity + 1
		case gaveUp:
			if capacity >= height-1 {
				return offsets, least, nodes
			}
			capacity = max(capacity+1, capacity+(height-capacity)/2)
			continue
		}
		capacity = least + (height-least)/2
	}
	return offsets, least, nodes
}

// height returns the highest end of a buffer.
func (g *grid) height(offsets []int64) (height int64) {
	for i, at := range offsets {
		height = max(height, at+g.size(int32(i)))
	}
	return height
}
