// Package replicas keeps the parameters of the model's replicas equal.
//
// Ranks with the same number in different replicas have the same parameters. The [Shared] of such a rank adds the
// gradients of the other ranks to its own, and gathers the weights that they hold or have updated. The replicas divide
// the elements of each parameter among themselves ([ShardRange]). Only the replica that owns an element sums its
// gradients, in replica order, so the sums do not depend on timing.
//
// Transfers run on separate goroutines while the rank continues. They work on bytes, because only the goroutine of the
// rank may call operations on its device.
package replicas
