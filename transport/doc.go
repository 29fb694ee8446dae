// Package transport defines [Transport], which moves tensors between ranks: its contract, the
// names of its messages, and the errors that all transports share. It is for authors of
// transports. Package local joins the ranks of one process, packages tcp and mpi the ranks of
// several; package transporttest tests an implementation of the contract.
package transport
