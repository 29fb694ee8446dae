package hang

import (
	"maps"
	"slices"
)

// Wait says that a rank cannot go on before another one does something.
type Wait struct {
	Rank    int    `json:"rank"`
	For     int    `json:"for"`
	In      string `json:"in"` // the operation that the rank waits in: "recv from rank 3"
	Group   string `json:"group,omitempty"`
	Certain bool   `json:"certain"`
}

// waiting is the graph of waits.
type waiting struct {
	ranks []int
	of    map[int][]Wait // by the rank that waits
}

// graph returns the graph of waits, with these ranks in it even if none waits for them.
func graph(waits []Wait, ranks ...int) waiting {
	g := waiting{of: map[int][]Wait{}}
	for _, rank := range ranks {
		g.of[rank] = nil
	}
	for _, w := range waits {
		g.of[w.Rank] = append(g.of[w.Rank], w)
		if _, known := g.of[w.For]; !known {
			g.of[w.For] = nil
		}
	}
	g.ranks = slices.Sorted(maps.Keys(g.of))
	return g
}

// ends returns the ranks that everyone waits for in the end: those that wait for none,
// one by one, and circles of ranks that wait only for each other.
func (g *waiting) ends() (ends [][]int) {
	for _, part := range g.circles() {
		leaves := false
		for _, rank := range part {
			leaves = leaves || slices.ContainsFunc(g.of[rank], func(w Wait) bool { return !slices.Contains(part, w.For) })
		}
		if !leaves {
			ends = append(ends, part)
		}
	}
	return ends
}

// circles returns the ranks in parts: those of a part wait for each other, directly or
// through others (Tarjan's strongly connected components, without recursion).
func (g *waiting) circles() (parts [][]int) {
	number, low := map[int]int{}, map[int]int{}
	open := map[int]bool{}
	var path, stack []int
	next := map[int]int{}
	for _, root := range g.ranks {
		if _, seen := number[root]; seen {
			continue
		}
		for path = append(path, root); len(path) > 0; {
			rank := path[len(path)-1]
			if _, seen := number[rank]; !seen {
				number[rank], low[rank] = len(number), len(number)
				stack, open[rank] = append(stack, rank), true
			}
			if i := next[rank]; i < len(g.of[rank]) {
				next[rank]++
				to := g.of[rank][i].For
				if _, seen := number[to]; !seen {
					path = append(path, to)
				} else if open[to] {
					low[rank] = min(low[rank], number[to])
				}
				continue
			}
			path = path[:len(path)-1]
			if len(path) > 0 {
				before := path[len(path)-1]
				low[before] = min(low[before], low[rank])
			}
			if low[rank] == number[rank] {
				at := slices.Index(stack, rank)
				part := slices.Clone(stack[at:])
				stack = stack[:at]
				for _, one := range part {
					open[one] = false
				}
				slices.Sort(part)
				parts = append(parts, part)
			}
		}
	}
	slices.SortFunc(parts, func(a, b []int) int { return a[0] - b[0] })
	return parts
}

// behind returns the ranks that wait for one of these, directly or through others.
func (g *waiting) behind(ranks []int) []int {
	from := map[int][]int{}
	for _, rank := range g.ranks {
		for _, w := range g.of[rank] {
			from[w.For] = append(from[w.For], rank)
		}
	}
	reached := map[int]bool{}
	for list := slices.Clone(ranks); len(list) > 0; {
		rank := list[len(list)-1]
		list = list[:len(list)-1]
		if !reached[rank] {
			reached[rank] = true
			list = append(list, from[rank]...)
		}
	}
	for _, rank := range ranks {
		delete(reached, rank)
	}
	return slices.Sorted(maps.Keys(reached))
}
