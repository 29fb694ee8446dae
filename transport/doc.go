// Package transport defines [Transport], which moves tensors between ranks: its contract, its message tags, and
// the errors that all transports share. The package is for authors of transports. Package local joins the ranks
// of one process, and packages tcp and mpi join the ranks of several. Package transporttest tests whether an
// implementation fulfills the contract.
package transport
