package hang

import (
	"maps"
	"math"
	"slices"

	"github.com/weir-ml/weir/internal/flightrec"
)

// Wait states that one rank waits for another.
type Wait struct {
	Rank    int    `json:"rank"`
	For     int    `json:"for"`
	In      string `json:"in"` // the operation in which the rank waits, such as "recv from rank 3"
	Group   string `json:"group,omitempty"`
	Certain bool   `json:"certain"`
	kind    flightrec.Kind
}

// waiting is the graph of waits. It maps each rank that waits or is awaited to its waits.
type waiting map[int][]Wait

// graph returns the graph of waits. It includes the given ranks even if no rank waits for them.
func graph(waits []Wait, ranks ...int) waiting {
	g := waiting{}
	for _, rank := range ranks {
		g[rank] = nil
	}
	for _, w := range waits {
		g[w.Rank] = append(g[w.Rank], w)
		if _, known := g[w.For]; !known {
			g[w.For] = nil
		}
	}
	return g
}

// ends returns the ranks that all others wait for, directly or through others: each rank that
// waits for none, on its own, and each cycle of ranks that wait only for each other. These are the
// strongly connected components without an edge to another component, found by Tarjan's algorithm.
func (g waiting) ends() (ends [][]int) {
	number, low := map[int]int{}, map[int]int{}
	var stack []int
	var visit func(rank int)
	visit = func(rank int) {
		number[rank] = len(number) + 1
		low[rank] = number[rank]
		start := len(stack)
		stack = append(stack, rank)
		for _, w := range g[rank] {
			if number[w.For] == 0 {
				visit(w.For)
			}
			low[rank] = min(low[rank], low[w.For])
		}
		if low[rank] < number[rank] {
			return
		}
		part := slices.Sorted(slices.Values(stack[start:]))
		stack = stack[:start]
		leaves := false
		for _, one := range part {
			low[one] = math.MaxInt // its component is complete
			leaves = leaves || slices.ContainsFunc(g[one], func(w Wait) bool { return !slices.Contains(part, w.For) })
		}
		if !leaves {
			ends = append(ends, part)
		}
	}
	for _, rank := range slices.Sorted(maps.Keys(g)) {
		if number[rank] == 0 {
			visit(rank)
		}
	}
	slices.SortFunc(ends, func(a, b []int) int { return a[0] - b[0] })
	return ends
}

// layers returns the ranks that wait for any of the given ranks, then the ranks that wait for any
// of those, and so on. If the given ranks form a cycle, they are in the first layer themselves.
func (g waiting) layers(ranks []int) (layers [][]int) {
	left := slices.Sorted(maps.Keys(g))
	for len(ranks) > 0 {
		awaited := map[int]bool{}
		for _, rank := range ranks {
			awaited[rank] = true
		}
		var layer, rest []int
		for _, rank := range left {
			if slices.ContainsFunc(g[rank], func(w Wait) bool { return awaited[w.For] }) {
				layer = append(layer, rank)
			} else {
				rest = append(rest, rank)
			}
		}
		if layer != nil {
			layers = append(layers, layer)
		}
		ranks, left = layer, rest
	}
	return layers
}
