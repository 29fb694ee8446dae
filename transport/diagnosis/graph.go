package diagnosis

import (
	"maps"
	"math"
	"slices"
)

// Graph is a graph of waits. It maps each rank that waits or is awaited to the ranks that it waits for.
type Graph map[int][]int

// Add adds a wait of one rank for another.
func (g Graph) Add(rank, awaited int) {
	g[rank] = append(g[rank], awaited)
	if _, known := g[awaited]; !known {
		g[awaited] = nil
	}
}

// Ends returns the groups of ranks at which chains of waits end: each rank that waits for no other, and each
// cycle of ranks that wait only for each other. These are the strongly connected components without an edge to
// another component, found by Tarjan's algorithm.
func (g Graph) Ends() (ends [][]int) {
	number, low := map[int]int{}, map[int]int{}
	var stack []int
	var visit func(rank int)
	visit = func(rank int) {
		number[rank] = len(number) + 1
		low[rank] = number[rank]
		start := len(stack)
		stack = append(stack, rank)
		for _, awaited := range g[rank] {
			if number[awaited] == 0 {
				visit(awaited)
			}
			low[rank] = min(low[rank], low[awaited])
		}
		if low[rank] < number[rank] {
			return
		}
		part := slices.Sorted(slices.Values(stack[start:]))
		stack = stack[:start]
		leaves := false
		for _, one := range part {
			low[one] = math.MaxInt // its component is complete
			leaves = leaves || slices.ContainsFunc(g[one], func(awaited int) bool { return !slices.Contains(part, awaited) })
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

// Layers returns the ranks that wait for any of the given ranks, then the ranks that wait for any
// of those, and so on. If the given ranks form a cycle, they are in the first layer themselves.
func (g Graph) Layers(ranks []int) (layers [][]int) {
	left := slices.Sorted(maps.Keys(g))
	for len(ranks) > 0 {
		awaited := map[int]bool{}
		for _, rank := range ranks {
			awaited[rank] = true
		}
		var layer, rest []int
		for _, rank := range left {
			if slices.ContainsFunc(g[rank], func(one int) bool { return awaited[one] }) {
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
