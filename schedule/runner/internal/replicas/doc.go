// Package replicas keeps the parameters of the model's replicas equal.
//
// The ranks with one number in all replicas have the same parameters. A [Shared] is what one of them
// shares with the others: it adds their gradients to its own, and gathers the weights that they hold
// or have updated. The replicas divide the elements of each parameter among themselves ([ShardRange]). A
// replica alone sums the gradients of its elements, in replica order, so the sums do not depend on who
// is faster.
//
// Transfers run on goroutines of their own while the rank continues. They work on bytes, because only
// the goroutine of the rank may call operations on its device.
package replicas
