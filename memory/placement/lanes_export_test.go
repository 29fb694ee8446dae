package placement

import "context"

// Lanes lays a round out in lanes, as low as its bound if it finds how.
func Lanes(r *Round, nodes int64, seed uint64) *RoundLayout {
	least := r.shortest()
	return r.lanes(context.Background(), least, Options{Nodes: nodes, Seed: seed, Capacity: r.circle(least).Bound()})
}
