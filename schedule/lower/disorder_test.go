package lower_test

import (
	"math/rand/v2"

	"pgregory.net/rapid"

	"github.com/weir-ml/weir/internal/testing/plantest"
	"github.com/weir-ml/weir/schedule"
)

// drawDisorder draws a plan of computations on several ranks, in a random valid order.
func drawDisorder(t *rapid.T) *schedule.Plan {
	rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
	p, _ := plantest.Grow(rng, plantest.Features{Ranks: 4, Depth: 6, Microbatches: 6})
	return p
}
