// Package lower is for turning a plan of computations into one that can run. Its passes add the
// gathering of weights, the reduction of gradients, the copies of weights, the transfers between
// ranks, the copies of saved state to far memory and back, and the drops of each action. [Prepare] runs all of them and proves the result.
package lower
