// Package transport is for the author of a [Transport], which moves tensors between ranks:
// its contract, the names of its messages, and the errors that all transports share.
// Package local joins the ranks of one process, packages tcp and mpi those of several;
// package transporttest holds any of them to the contract.
package transport
