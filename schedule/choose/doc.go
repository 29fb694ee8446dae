// Package choose selects the fastest schedule for measured costs and a memory limit.
//
// [Choose] builds a plan for each variant (group size, cap) of every schedule that supports the given
// ranks and stages. It proves each plan, simulates it with the costs of the stages, and returns the
// fastest plan that fits into the memory, together with the Pareto front of time and memory. A plan that
// cannot be proven is never a candidate; the result lists it with the reason.
//
// Choose also searches for orders that suit the costs. It takes orders from list scheduling, based on the
// heuristic of the zero-bubble paper, from the heuristic of the paper's authors for two stages on each rank, and
// from the named schedules, and improves the best of them by forward-backward improvement. For a long step,
// it searches for an order for fewer microbatches and repeats its steady state. The orders that it finds are lowered,
// proven and simulated like all other plans.
//
// If a rank has far memory, Choose tries the fastest plans again with the saved state of some
// stages offloaded.
//
// No rule of thumb selects the best schedule: it depends on the latency between ranks, on the
// memory, and on the ratio of F, I and W.
package choose
