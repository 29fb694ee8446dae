// Package lower turns a plan of computations into a plan that can run. Its passes add the gathering
// of weights, the low-precision copies of weights, the reduction of gradients over replicas, the
// transfers between ranks, the copies of saved state to far memory and back, and the drops of each
// action. Begin with [Prepare], which runs all passes and proves the result.
package lower
